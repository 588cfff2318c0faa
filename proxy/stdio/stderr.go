package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// Bounds on what a process may put into the log.
const (
	maxLogLine   = 4 << 10
	logBurst     = 100
	logPerSecond = 20
	tailLines    = 8
	tailLine     = 512
)

// stderrLog writes to the log what a process writes to its standard error, and
// remembers the end of it.
type stderrLog struct {
	log     *slog.Logger
	limiter *rate.Limiter

	mu   sync.Mutex
	last []string
}

func newStderrLog(log *slog.Logger) *stderrLog {
	return &stderrLog{log: log, limiter: rate.NewLimiter(logPerSecond, logBurst)}
}

// copy reads until r ends. It never stops reading before: the process would block.
func (l *stderrLog) copy(r io.Reader) {
	in := bufio.NewReaderSize(r, maxLogLine)
	suppressed := 0

	for rest := false; ; {
		part, err := in.ReadSlice('\n')
		text := strings.ToValidUTF8(string(bytes.TrimSpace(part)), "\uFFFD")

		if !rest && text != "" {
			l.remember(text)

			switch {
			case !l.limiter.Allow():
				suppressed++
			case suppressed > 0:
				l.log.Info("the stdio server wrote to stderr", "line", text, "suppressed", suppressed)

				suppressed = 0
			default:
				l.log.Info("the stdio server wrote to stderr", "line", text)
			}
		}

		rest = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !rest {
			break
		}
	}

	if suppressed > 0 {
		l.log.Info("the stdio server wrote more to stderr than is logged", "suppressed", suppressed)
	}
}

func (l *stderrLog) remember(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.last = append(l.last, strings.ToValidUTF8(text[:min(len(text), tailLine)], ""))
	if len(l.last) > tailLines {
		l.last = l.last[1:]
	}
}

// tail returns the last lines.
func (l *stderrLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return strings.Join(l.last, "\n")
}
