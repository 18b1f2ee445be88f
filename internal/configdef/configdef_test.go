package configdef

import (
	"strings"
	"testing"
)

func TestTablesLoadAndDefaultsAreValid(t *testing.T) {
	for name, c := range map[string]struct {
		table *Table
		keys  int
	}{"broker": {Broker(), 382}, "topic": {Topic(), 38}, "group": {Group(), 27}, "clientmetrics": {ClientMetrics(), 3}} {
		if got := c.table.Len(); got != c.keys {
			t.Errorf("%s: %d keys, want %d", name, got, c.keys)
		}
		for k := range c.table.All() {
			if k.Default == nil {
				continue
			}
			v, err := k.Parse(*k.Default)
			if err != nil {
				t.Errorf("%s: default of %s is not valid: %v", name, k.Name, err)
			}
			if got := Format(v); got != *k.Default {
				t.Errorf("%s: default of %s formats as %q, want %q", name, k.Name, got, *k.Default)
			}
		}
	}
}

func TestEveryTopicAndGroupSynonymIsABrokerKey(t *testing.T) {
	for _, table := range []*Table{Topic(), Group()} {
		for k := range table.All() {
			for _, s := range k.Synonyms {
				if Broker().Lookup(s.Name) == nil {
					t.Errorf("%s: synonym %s is no broker key", k.Name, s.Name)
				}
			}
		}
	}
}

func TestInvalidValuesSayWhatIsValid(t *testing.T) {
	for _, c := range []struct{ key, value, reason string }{
		{"segment.bytes", "5", "Value must be at least 1048576"},
		{"segment.bytes", "x", "Not a number of type INT"},
		{"segment.bytes", "3000000000", "Not a number of type INT"},
		{"retention.ms", "-2", "Value must be at least -1"},
		{"retention.ms", "1.5", "Not a number of type LONG"},
		{"min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"},
		{"preallocate", "yes", "Expected value to be either true or false"},
		{"compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"},
		{"cleanup.policy", "compact,shred", "String must be one of: compact, delete"},
		{"min.cleanable.dirty.ratio", "2", "Value must be no more than 1"},
		{"leader.replication.throttled.replicas", "1", "leader.replication.throttled.replicas must be the literal '*' or a list"},
	} {
		_, err := Topic().Lookup(c.key).Parse(c.value)
		shown := map[string]string{"2": "2.0", "1": "[1]"}[c.value]
		if shown == "" {
			shown = c.value
		}
		if err == nil || !strings.Contains(err.Error(), c.reason) || !strings.HasPrefix(err.Error(), "Invalid value "+shown+" for configuration "+c.key) {
			t.Errorf("%s=%s: %v, want %q", c.key, c.value, err, c.reason)
		}
	}
}

func TestValidValuesParseToTheirType(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       string
	}{
		{"segment.bytes", " 1048576 ", "1048576"},
		{"cleanup.policy", "compact , delete", "compact,delete"},
		{"cleanup.policy", "", ""},
		{"cleanup.policy", "compact,compact", "compact"},
		{"leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2"},
		{"leader.replication.throttled.replicas", "*", "*"},
		{"min.cleanable.dirty.ratio", "1", "1.0"},
		{"preallocate", "TRUE", "true"},
	} {
		v, err := Topic().Lookup(c.key).Parse(c.value)
		if err != nil || Format(v) != c.want {
			t.Errorf("%s=%q: %v (%v), want %q", c.key, c.value, Format(v), err, c.want)
		}
	}
}

func TestDurationsOfOffsetReset(t *testing.T) {
	k := Group().Lookup("share.auto.offset.reset")
	for value, ok := range map[string]bool{
		"latest": true, "earliest": true, "by_duration:PT1H": true, "by_duration:P3DT1H2M3.5S": true,
		"by_duration:": false, "by_duration:P": false, "by_duration:PT": false, "by_duration:-PT1H": false,
		"by_duration:PT1M1H": false, "none": false,
	} {
		if _, err := k.Parse(value); (err == nil) != ok {
			t.Errorf("%s: error %v, want valid %v", value, err, ok)
		}
	}
}

func TestSecretsDoNotShowInErrorsAndTypesAreSensitive(t *testing.T) {
	k := Broker().Lookup("ssl.key.password")
	if !k.Sensitive {
		t.Error("a PASSWORD key is not sensitive")
	}
}

func TestNearestFindsTypos(t *testing.T) {
	for typo, want := range map[string]string{"log.dirss": "log.dirs", "num.partition": "num.partitions", "auto.create.topic.enable": "auto.create.topics.enable", "my.plugin.setting.of.some.kind": ""} {
		if got := Broker().Nearest(typo); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", typo, got, want)
		}
	}
}

func TestDoublesFormatAsInJava(t *testing.T) {
	for v, want := range map[float64]string{0.5: "0.5", 1: "1.0", 1.7976931348623157e308: "1.7976931348623157E308", 1e7: "1.0E7", 0.0005: "5.0E-4", 0: "0.0", 2147483647: "2.147483647E9"} {
		if got := formatDouble(v); got != want {
			t.Errorf("formatDouble(%v) = %q, want %q", v, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cleanup.policy", "compact,delete")
	f.Add("segment.bytes", "1048576")
	f.Fuzz(func(t *testing.T, key, value string) {
		k := Topic().Lookup(key)
		if k == nil {
			return
		}
		v, err := k.Parse(value)
		if err != nil {
			return
		}
		again, err := k.Parse(Format(v))
		if err != nil || Format(again) != Format(v) {
			t.Errorf("%s=%q: %q does not parse to itself: %v", key, value, Format(v), err)
		}
	})
}
