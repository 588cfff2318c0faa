package notify

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a Retry-After header can ask for.
const maxRetryAfter = 5 * time.Minute

// retryAfter returns how long the first valid Retry-After of h asks to wait: in
// seconds, or as one of the three date forms of HTTP (IMF-fixdate, RFC 850,
// asctime). A date that has passed is valid and means no wait. The result is at
// most maxRetryAfter; false means that there was no valid value.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	for _, v := range h.Values("Retry-After") {
		v = strings.TrimSpace(v)
		if v == "" {
			continue
		}
		if isDigits(v) {
			s, err := strconv.ParseInt(v, 10, 64)
			if err != nil || s > int64(maxRetryAfter/time.Second) {
				return maxRetryAfter, true // more digits than fit is just a long time
			}

			return time.Duration(s) * time.Second, true
		}
		if at, err := http.ParseTime(v); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter), true
		}
	}

	return 0, false
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}

	return s != ""
}
