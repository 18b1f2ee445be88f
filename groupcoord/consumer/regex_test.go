package consumer

import (
	"testing"

	"gregor/protocol"
)

func TestPatternsAreRefusedInTheWordsOfRE2J(t *testing.T) {
	// The answers are those of Apache Kafka 4.4.0.
	for _, c := range []struct{ pattern, why string }{
		{"(", "missing closing )"},
		{"[a", "missing closing ]"},
		{"*", "missing argument to repetition operator"},
		{"a**", "invalid nested repetition operator"},
		{`\`, "trailing backslash at end of expression"},
		{"[z-a]", "invalid character class range"},
		{"(?=a)", "invalid or unsupported Perl syntax"},
		{"a{1001}", "invalid repeat count"},
		{"a)", "regexp/syntax: internal error"},
		{"a)(b", "regexp/syntax: internal error"},
		{"a)|(b", "regexp/syntax: internal error"},
	} {
		_, err := compilePattern(c.pattern)
		want := "SubscribedTopicRegex `" + c.pattern + "` is not a valid regular expression: " + c.why + "."
		if err == nil || protocol.ErrorMessageOf(err) != want {
			t.Errorf("%s: %v, want %s", c.pattern, err, want)
		}
	}
}

func TestPatternsMatchWholeNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a|bc", "bc", true},
		{"a|bc", "abc", false},
		{"(?i)A.", "ab", true},
		{"a.*", "ba", false},
		{"", "", true},
	} {
		re, err := compilePattern(c.pattern)
		if err != nil || re.MatchString(c.name) != c.want {
			t.Errorf("%q matches %q: not %v (%v)", c.pattern, c.name, c.want, err)
		}
	}
}
