package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

var (
	errBodyTooLarge  = errors.New("the request body is larger than this server accepts")
	errBodyTooSlow   = errors.New("the request body took too long: send it again")
	errBodyBrokenOff = errors.New("the request body could not be read")
)

// readBody reads the whole body of a request, within the bounds of size and time
// that cfg sets. With an error comes the status to refuse the request with.
func readBody(w http.ResponseWriter, r *http.Request, cfg *Config) ([]byte, int, error) {
	if r.ContentLength == 0 {
		return nil, 0, nil
	}

	// A request with both a length and chunks must be the last on its connection
	// (RFC 9112, section 6.1): whoever is in front may see its end elsewhere. The
	// server takes the length out without a word, so that this goes for chunks in
	// general.
	if len(r.TransferEncoding) > 0 {
		w.Header().Set("Connection", "close")
	}

	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(cfg.BodyTimeout)) // connections that have none are in tests only

	in := r.Body
	if r.ContentLength < 0 || r.ContentLength > cfg.MaxBody {
		in = http.MaxBytesReader(w, in, cfg.MaxBody)
	}

	body, err := readAll(in, r.ContentLength)

	// The server reads on, to see whether the client leaves. It may not run out of
	// time with that.
	_ = rc.SetReadDeadline(time.Time{})

	_, tooLarge := errors.AsType[*http.MaxBytesError](err)

	switch {
	case err == nil:
		return body, 0, nil
	case tooLarge:
		return nil, http.StatusRequestEntityTooLarge, errBodyTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close") // the rest of the body may still come
		return nil, http.StatusRequestTimeout, errBodyTooSlow
	default:
		return nil, http.StatusBadRequest, errBodyBrokenOff
	}
}

// maxBelieved is how much memory the word of a client is good for, that its body
// has this length.
const maxBelieved = 64 << 10

// readAll reads a body whose length was announced, or is -1.
func readAll(r io.Reader, length int64) ([]byte, error) {
	if length < 0 || length > maxBelieved {
		return io.ReadAll(r) //nolint:wrapcheck // the caller classifies it
	}

	body := make([]byte, length)
	n, err := io.ReadFull(r, body)

	return body[:n], err //nolint:wrapcheck // the caller classifies it
}
