package api

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/protocol"
)

// errNoAnswer closes a connection whose request cannot be answered in its own format.
var errNoAnswer = errors.New("request cannot be answered")

// panicError is a handler's panic.
type panicError struct{ value any }

func (e panicError) Error() string {
	return fmt.Sprintf("handler panicked: %v\n%s", e.value, debug.Stack())
}

// code maps an error to the code that the client is told. A cause that has no code is a defect of ours or a
// failure of the machine: it is logged once, here, and the client gets UNKNOWN_SERVER_ERROR.
func code(log *slog.Logger, what string, err error) int16 {
	c := protocol.ErrorCode(err)
	if c == kerr.UnknownServerError.Code {
		log.Error("request failed", "api", what, "error", err)
	}
	return c
}

// message is the text for the client's error message field; nil for no error.
func message(err error) *string {
	if err == nil {
		return nil
	}
	m := protocol.ErrorMessageOf(err)
	return &m
}
