// Package cases holds behaviors that clients and tools depend on, each a test named after it. Every one of them
// runs against Gregor and against Apache Kafka, so that what it claims of Kafka is checked too.
package cases

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/compat-tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// waitTimeout bounds the wait for what happens in the background.
const waitTimeout = 30 * time.Second

func wantCode(t *testing.T, what string, got int16, want *kerr.Error) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Errorf("%s: error %d (%v), want %d (%v)", what, got, kerr.ErrorForCode(got), code, kerr.ErrorForCode(code))
	}
}

func want[V comparable](t *testing.T, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// nowMillis is the clock that brokers on this machine have too.
func nowMillis() int64 { return time.Now().UnixMilli() }

// between pauses a test for what has no sign of its own to wait for.
func between(d time.Duration) { <-time.After(d) }
