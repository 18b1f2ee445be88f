package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAPIFactsAgreeWithTheGoldenMessages: the versions are those that Kafka's
// classes have, and a version is flexible where kmsg says so.
func TestAPIFactsAgreeWithTheGoldenMessages(t *testing.T) {
	versions := map[int16][]int16{}
	for _, m := range goldenMessages(t) {
		if m.request && m.variant == "full" {
			versions[m.key] = append(versions[m.key], m.version)
		}
	}
	for _, api := range APIs() {
		got := versions[api.Key]
		if len(got) == 0 || slices.Min(got) != api.MinVersion || slices.Max(got) != api.MaxVersion {
			t.Errorf("%s: versions %d to %d, goldens have %v", api.Name, api.MinVersion, api.MaxVersion, got)
		}
		req := kmsg.RequestForKey(api.Key)
		for _, v := range got {
			req.SetVersion(v)
			if req.IsFlexible() != api.Flexible(v) {
				t.Errorf("%s v%d: flexible %v, kmsg says %v", api.Name, v, api.Flexible(v), req.IsFlexible())
			}
			if v >= maxSchemaVersions {
				t.Errorf("%s v%d is beyond the table of schemas", api.Name, v)
			}
		}
		delete(versions, api.Key)
	}
	if len(versions) != 0 {
		t.Errorf("not in the table: %v", slices.Collect(maps.Keys(versions)))
	}
}

func TestAPITable(t *testing.T) {
	all := APIs()
	if len(all) != 91 || !slices.IsSortedFunc(all, func(a, b API) int { return int(a.Key) - int(b.Key) }) {
		t.Errorf("%d APIs", len(all))
	}
	both, advertised := 0, 0
	for _, api := range all {
		if api.Listeners == OnBroker|OnController {
			both++
		}
		if api.AdvertisedMin != api.MinVersion {
			advertised++
		}
		if back, ok := APIByKey(api.Key); !ok || back != api || APIName(api.Key) != api.Name || api.Private {
			t.Errorf("key %d gives %+v", api.Key, back)
		}
	}
	if both != 30 || advertised != 1 {
		t.Errorf("%d APIs on both kinds of listeners, %d advertised differently", both, advertised)
	}
	if produce, _ := APIByKey(KeyProduce); produce.AdvertisedMin != 0 || produce.MinVersion != 3 {
		t.Errorf("%+v", produce)
	}
	for _, key := range []int16{-1, 4, 5, 6, 7, 95, 999} {
		if api, ok := APIByKey(key); ok || APIName(key) != "Unknown" || RequestHeaderVersion(key, 9) != 1 || ResponseHeaderVersion(key, 9) != 0 {
			t.Errorf("key %d gives %+v", key, api)
		}
	}
	if own, ok := APIByKey(RaftMessageKey); !ok || !own.Private || own.Listeners != OnController {
		t.Errorf("our own API is %+v", own)
	}
}

// TestErrorTableIsKerrs: same codes and names, same idea of what is retriable,
// except where franz-go takes a side of its own.
func TestErrorTableIsKerrs(t *testing.T) {
	if ErrorCodes != 138 {
		t.Errorf("%d codes", ErrorCodes)
	}
	for code := int16(-1); int(code) < ErrorCodes-1; code++ {
		err := kerr.ErrorForCode(code)
		k, ok := errors.AsType[*kerr.Error](err)
		switch {
		case code == 0:
			if ErrorName(code) != "NONE" || ErrorMessage(code) != "NONE" {
				t.Errorf("0 is %q, %q", ErrorName(code), ErrorMessage(code))
			}
		case !ok || k.Code != code:
			t.Logf("kerr does not know %d %s", code, ErrorName(code))
		case code == 6 && k.Message == "NOT_LEADER_FOR_PARTITION": // its name before KIP-392
		case k.Message != ErrorName(code):
			t.Errorf("%d is %s, kerr says %s", code, ErrorName(code), k.Message)
		}
		if ErrorMessage(code) == "" {
			t.Errorf("%d has no message", code)
		}
	}
	for code, retriable := range map[int16]bool{-1: false, 3: true, 16: true, 36: false, 100: true, 45: false} {
		if ErrorRetriable(code) != retriable {
			t.Errorf("%d is retriable: %v", code, !retriable)
		}
	}
	for _, code := range []int16{-2, 137, 32000} {
		if ErrorName(code) != "UNKNOWN_SERVER_ERROR" {
			t.Errorf("%d is %s", code, ErrorName(code))
		}
	}
	if got := ErrorMessage(3); got != "This server does not host this topic-partition." {
		t.Errorf("message of 3: %q", got)
	}
}

type ownCode struct{}

func (ownCode) Error() string         { return "own" }
func (ownCode) KafkaErrorCode() int16 { return 56 }

func TestErrorCodeLooksThroughTheTree(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		code    int16
		message string
	}{
		"nil":              {nil, 0, ""},
		"kerr":             {kerr.NotCoordinator, 16, "This is not the correct coordinator."},
		"wrapped kerr":     {fmt.Errorf("group g: %w", kerr.NotCoordinator), 16, "This is not the correct coordinator."},
		"joined":           {errors.Join(errors.New("x"), kerr.NotCoordinator), 16, "This is not the correct coordinator."},
		"with a message":   {fmt.Errorf("op: %w", NewError(37, "Topic t has 3 partitions.")), 37, "Topic t has 3 partitions."},
		"without message":  {NewError(3, ""), 3, "This server does not host this topic-partition."},
		"own type":         {fmt.Errorf("op: %w", ownCode{}), 56, ErrorMessage(56)},
		"deadline":         {fmt.Errorf("op: %w", context.DeadlineExceeded), 7, "The request timed out."},
		"unmapped":         {errors.New("secret"), -1, "The server experienced an unexpected error when processing the request."},
		"cause is not out": {&Error{Code: -1, Cause: errors.New("secret")}, -1, "The server experienced an unexpected error when processing the request."},
	} {
		if got := ErrorCode(c.err); got != c.code {
			t.Errorf("%s: code %d, want %d", name, got, c.code)
		}
		if got := ErrorMessageOf(c.err); got != c.message {
			t.Errorf("%s: message %q, want %q", name, got, c.message)
		}
	}
	cause := errors.New("disk")
	err := &Error{Code: 16, Message: "moved", Cause: cause}
	if !errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorLoadInProgress) || !errors.Is(err, cause) {
		t.Error("errors.Is does not see code and cause")
	}
	if got := err.Error(); got != "NOT_COORDINATOR: moved: disk" {
		t.Errorf("text %q", got)
	}
}
