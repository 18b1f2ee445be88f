package protocol

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Errors of frames. A request that gives one of them closes its connection
// without an answer, as in Kafka.
var (
	// ErrUnknownKey is a request whose API key names no API.
	ErrUnknownKey = errors.New("unknown API key")
	// ErrUnsupportedVersion is a request in a version that Kafka 4.4 does not
	// serve, other than ApiVersions, which is answered in version 0.
	ErrUnsupportedVersion = errors.New("unsupported API version")
	// ErrMalformed is a frame that does not hold what its key and version say.
	ErrMalformed = errors.New("malformed frame")
	// ErrBudget is a request whose decoding would take more memory than its
	// size allows.
	ErrBudget = errors.New("request exceeds its decode budget")
)

// Error is a Kafka error with a message of its own for the client, and
// optionally the cause, which is for the log only.
type Error struct {
	Code    int16
	Message string
	Cause   error
}

// NewError returns an Error with a message; an empty one means Kafka's standard
// message of the code.
func NewError(code int16, message string) *Error {
	return &Error{Code: code, Message: message}
}

// Error returns name, message and cause.
func (e *Error) Error() string {
	text := ErrorName(e.Code) + ": " + e.ClientMessage()
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is franz-go's error of the same code, so that
// errors.Is(err, kerr.NotCoordinator) works on both.
func (e *Error) Is(target error) bool {
	k, ok := target.(*kerr.Error) // errors.Is has unwrapped target
	return ok && k.Code == e.Code
}

// ClientMessage returns what belongs into an error message field.
func (e *Error) ClientMessage() string {
	if e.Message != "" {
		return e.Message
	}
	return ErrorMessage(e.Code)
}

// coded is what another package's error type implements to have a Kafka code.
type coded interface{ KafkaErrorCode() int16 }

// ErrorCode returns the code that a client is told for err: 0 for nil, the code
// of an Error, a *kerr.Error or an error with a KafkaErrorCode method anywhere
// in its tree, 7 REQUEST_TIMED_OUT for an exceeded deadline, and otherwise -1
// UNKNOWN_SERVER_ERROR, in which case the caller logs the cause.
func ErrorCode(err error) int16 {
	if err == nil {
		return 0
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Code
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return k.Code
	}
	var c coded
	if errors.As(err, &c) {
		return c.KafkaErrorCode()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return kerr.RequestTimedOut.Code
	}
	return kerr.UnknownServerError.Code
}

// ErrorMessageOf returns the text for a client: an Error's own message, else the
// standard message of ErrorCode(err). The cause of an unmapped error is never
// part of it. It is empty for nil.
func ErrorMessageOf(err error) string {
	if err == nil {
		return ""
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own.ClientMessage()
	}
	return ErrorMessage(ErrorCode(err))
}

// ErrorMessage returns Kafka's standard message of a code, which is what the
// error message fields of answers hold unless a handler knows better; for an
// unknown code that of UNKNOWN_SERVER_ERROR, for 0 "NONE".
func ErrorMessage(code int16) string { return lookupError(code).message }

// ErrorName returns the name of a code, such as NOT_COORDINATOR.
func ErrorName(code int16) string { return lookupError(code).name }

// ErrorRetriable reports whether clients retry on a code.
func ErrorRetriable(code int16) bool { return lookupError(code).retriable }

// ErrorCodes is the number of codes: they run from -1 to ErrorCodes-2.
const ErrorCodes = len(errorTable)

type errorFacts struct {
	name      string
	retriable bool
	message   string
}

func lookupError(code int16) *errorFacts {
	if i := int(code) + 1; i >= 0 && i < len(errorTable) {
		return &errorTable[i]
	}
	return &errorTable[0]
}
