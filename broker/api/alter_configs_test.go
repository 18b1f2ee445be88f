package api

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/config"
	"gregor/kraft/image"
)

func TestAlterationsThatTheBrokerRefuses(t *testing.T) {
	cfg, _, err := config.Load(config.Options{Overrides: []string{"log.cleaner.threads=2"}})
	if err != nil {
		t.Fatal(err)
	}
	h := &alterConfigs{node: Node{ID: 1, Images: new(image.Cell), Config: func() *config.Config { return cfg }}}
	broker := func(name string, keys ...string) alteration {
		a := alteration{kind: kmsg.ConfigResourceTypeBroker, name: name, texts: map[string]string{}}
		for _, k := range keys {
			key, text, _ := strings.Cut(k, "=")
			a.keys = append(a.keys, key)
			a.texts[key] = text
		}
		return a
	}
	for _, c := range []struct {
		a    alteration
		want string // "" for accepted
	}{
		{broker("1", "log.cleaner.threads=2"), ""},
		{broker("1", "log.cleaner.threads=5"), "Dynamic thread count update validation failed for log.cleaner.threads=5, value should not be greater than double the current value 2"},
		{broker("", "log.cleaner.threads=5"), "Dynamic thread count update validation failed for log.cleaner.threads=5, value should not be greater than double the current value 2"},
		{broker("", "log.cleaner.threads=2"), ""},
		{broker("1", "some.plugin.key=2"), ""},
		{broker("1", "log.cleaner.threads=abc"), "Invalid value abc for configuration log.cleaner.threads: Not a number of type INT"},
		{broker("2", "log.cleaner.threads=2"), "Unexpected broker id, expected 1, but received 2"},
		{broker("one", "log.cleaner.threads=2"), "Node id must be an integer, but it is: one"},
		{broker("1", "security.inter.broker.protocol=PLAINTEXT"), "Cannot update these configs dynamically: [security.inter.broker.protocol]"},
		{broker("1", "ssl.truststore.type=PKCS12"), "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.truststore.type]"},
		{broker("1", "listener.name.internal.ssl.truststore.type=PKCS12"), ""},
		{broker("", "listener.name.internal.ssl.truststore.type=PKCS12"), "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.internal.ssl.truststore.type]"},
		{alteration{kind: kmsg.ConfigResourceTypeTopic, name: "t", keys: []string{"a", "a"}}, "Error due to duplicate config keys"},
		{alteration{kind: kmsg.ConfigResourceTypeTopic, name: "t", keys: []string{"a"}, nullKeys: []string{"a"}}, "Null value not supported for : a"},
		{alteration{kind: 77, name: "t"}, "Unknown resource type 77"},
	} {
		err := h.check([]alteration{c.a})[0]
		if got := message(err); (got == nil) != (c.want == "") || got != nil && *got != c.want {
			t.Errorf("%+v: %v, want %q", c.a, err, c.want)
		}
	}
	twice := alteration{kind: kmsg.ConfigResourceTypeTopic, name: "t"}
	for i, err := range h.check([]alteration{twice, twice, {kind: kmsg.ConfigResourceTypeTopic, name: "other"}}) {
		if (err == nil) != (i == 2) {
			t.Errorf("resource %d of a request that names one twice: %v", i, err)
		}
	}
}

func TestAlterationAppliesToWhatIsSet(t *testing.T) {
	current := map[string]string{"a": "1", "b": "2"}
	a := alteration{deletes: []string{"a"}, texts: map[string]string{"c": "3"}}
	if got := a.applied(current); len(got) != 2 || got["b"] != "2" || got["c"] != "3" {
		t.Errorf("incremental: %v", got)
	}
	a.replaces = true
	if got := a.applied(current); len(got) != 1 || got["c"] != "3" || len(current) != 2 {
		t.Errorf("replacing: %v, and now %v is set", got, current)
	}
}

// A request of a few megabytes may name more resources than can be compared each with each.
func TestResourcesAreNotComparedEachWithEach(t *testing.T) {
	all := make([]alteration, 30_000)
	for i := range all {
		all[i] = alteration{kind: kmsg.ConfigResourceTypeTopic, name: strconv.Itoa(i)}
	}
	began := time.Now()
	for _, err := range (&alterConfigs{}).check(all) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the check of %d resources took %v", len(all), took)
	}
}
