package protocol

import (
	"strings"
	"testing"
)

func TestTopicNamesAreValidAsInKafka(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.9", strings.Repeat("x", 249), "...", "__consumer_offsets"} {
		if why := TopicNameProblem(name); why != "" {
			t.Errorf("%q: %s", name, why)
		}
	}
	long := strings.Repeat("x", 250)
	for name, want := range map[string]string{
		"": "the empty string is not allowed", ".": "'.' is not allowed", "..": "'..' is not allowed",
		long:  "the length of '" + long + "' is longer than the max allowed length 249",
		"a b": "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"a/b": "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"ä":   "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"a\n": "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
	} {
		if got := TopicNameProblem(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
