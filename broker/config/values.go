package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gregor/internal/configdef"
)

// Source says where a value comes from, in Kafka's order of precedence (DescribeConfigs' config_source).
type Source int8

// The sources; their numbers are Kafka's.
const (
	SourceDynamicBroker        Source = 2
	SourceDynamicDefaultBroker Source = 3
	SourceStatic               Source = 4
	SourceDefault              Source = 5
)

// Value is one config with its source. Text is nil when the value is null.
type Value struct {
	Name   string
	Text   *string
	Source Source
	// Where names the file and line, the variable or the option of a static value.
	Where string
}

// static is one assignment of a file, of the environment or of the command line.
type static struct {
	text, where string
	name        string // as written
	// tied values were not written: they are another key's.
	tied bool
}

// values holds the text of everything that was set, by key.
type values struct {
	file           string // its name, "" without one
	static         map[string]static
	dynamicDefault map[string]string
	dynamicBroker  map[string]string
}

// Lookup returns the value of a known key with its source: dynamic values before static ones before the default.
func (c *Config) Lookup(name string) (Value, bool) {
	k := configdef.Broker().Lookup(name)
	if k == nil {
		return Value{}, false
	}
	all := c.Synonyms(name)
	return all[0], true
}

// Synonyms returns every value that a broker key could take, the one in force first, as DescribeConfigs'
// synonyms list them: for the key and its synonyms, dynamic, default dynamic, static, and the default last.
// It always has at least one element, whose Text is nil when nothing is set and the default is null.
func (c *Config) Synonyms(name string) []Value {
	var out []Value
	names := []string{name}
	if k := configdef.Broker().Lookup(name); k != nil && len(k.Synonyms) > 0 {
		names = names[:0]
		for _, s := range k.Synonyms {
			names = append(names, s.Name)
		}
	}
	out = appendSet(out, names, SourceDynamicBroker, c.values.dynamicBroker)
	out = appendSet(out, names, SourceDynamicDefaultBroker, c.values.dynamicDefault)
	for _, n := range names {
		if s, ok := c.values.static[n]; ok {
			out = append(out, Value{Name: n, Text: &s.text, Source: SourceStatic, Where: s.where})
		}
	}
	for _, n := range names {
		if k := configdef.Broker().Lookup(n); k != nil && k.Default != nil {
			out = append(out, Value{Name: n, Text: k.Default, Source: SourceDefault})
		}
	}
	if len(out) == 0 {
		out = append(out, Value{Name: name, Source: SourceDefault})
	}
	return out
}

func appendSet(out []Value, names []string, source Source, set map[string]string) []Value {
	for _, n := range names {
		if text, ok := set[n]; ok {
			out = append(out, Value{Name: n, Text: &text, Source: source})
		}
	}
	return out
}

// Unknown returns the keys that were set but that Kafka's table does not have, ordered by name, with their texts.
func (c *Config) Unknown() []Value {
	var out []Value
	for _, name := range slices.Sorted(maps.Keys(c.values.static)) {
		if s := c.values.static[name]; configdef.Broker().Lookup(name) == nil {
			out = append(out, Value{Name: s.name, Text: &s.text, Source: SourceStatic, Where: s.where})
		}
	}
	return out
}

// TopicDefaults returns the text of every topic config as a topic without overrides has it. A topic key takes
// the first of its broker synonyms that is set, in the synonym's unit converted to its own, else its default.
// Keys whose value is null are absent.
func (c *Config) TopicDefaults() map[string]string {
	out := make(map[string]string, configdef.Topic().Len())
	for k := range configdef.Topic().All() {
		if v := c.TopicSynonyms(k.Name); v[0].Text != nil {
			out[k.Name] = *v[0].Text
		}
	}
	return out
}

// TopicSynonyms returns what a topic key falls back to, in order: set broker synonyms, then defaults. Texts
// are in the topic key's unit, names are the broker keys' (the topic key's own for its default).
func (c *Config) TopicSynonyms(name string) []Value {
	k := configdef.Topic().Lookup(name)
	if k == nil {
		return []Value{{Name: name, Source: SourceDefault}}
	}
	return c.fallbacks(k)
}

// Fallback returns what a topic, group or client-metrics key is when it has no override: the first of its broker
// synonyms that is set, in the key's own unit, else its default.
func (c *Config) Fallback(k *configdef.Key) Value { return c.fallbacks(k)[0] }

// Own returns the text of a broker key itself, without regard to its synonyms; nil when it is not set and has no
// default.
func (c *Config) Own(name string) *string {
	if own := c.own(name); len(own) > 0 {
		return own[0].Text
	}
	return nil
}

func (c *Config) fallbacks(k *configdef.Key) []Value {
	var set, defaults []Value
	for _, s := range k.Synonyms {
		for _, v := range c.own(s.Name) {
			v.Text = scale(v.Text, s.Factor)
			if v.Source == SourceDefault {
				defaults = append(defaults, v)
			} else {
				set = append(set, v)
			}
		}
	}
	slices.SortStableFunc(set, func(a, b Value) int { return int(a.Source) - int(b.Source) })
	out := slices.Concat(set, defaults)
	if len(out) == 0 {
		out = append(out, Value{Name: k.Name, Text: k.Default, Source: SourceDefault})
	}
	return out
}

// own returns the values of one broker key without those of its synonyms.
func (c *Config) own(name string) []Value {
	var out []Value
	for _, v := range c.Synonyms(name) {
		if v.Name == name && v.Text != nil {
			out = append(out, v)
		}
	}
	return out
}

// scale multiplies the number in text; text that is no number stays.
func scale(text *string, factor int64) *string {
	if text == nil || factor == 1 {
		return text
	}
	var n int64
	if _, err := fmt.Sscan(*text, &n); err != nil {
		return text
	}
	if n > 0 { // -1 means "no limit" in every unit
		n *= factor
	}
	s := strconv.FormatInt(n, 10)
	return &s
}

// WithDynamic returns the Config that holds when these dynamic configs are in force: those of the default
// broker resource ("") and those of this broker. Keys that are not dynamic, and values that are not valid, are
// left out, and a warning names them: the controller validated them before they were stored, so this happens
// only with metadata that another version wrote.
func (c *Config) WithDynamic(defaults, own map[string]string) (*Config, []Warning) {
	v := &values{file: c.values.file, static: c.values.static}
	var warnings []Warning
	v.dynamicDefault, warnings = dynamicValues(defaults, configdef.ClusterWide, warnings)
	v.dynamicBroker, warnings = dynamicValues(own, configdef.PerBroker, warnings)
	next := &Config{values: v}
	if err := next.build(); err != nil {
		return c, append(warnings, Warning{Where: "dynamic config", Message: err.Error()})
	}
	return next, warnings
}

func dynamicValues(set map[string]string, least configdef.UpdateMode, warnings []Warning) (map[string]string, []Warning) {
	out := make(map[string]string, len(set))
	for name, text := range set {
		k := configdef.Broker().Lookup(name)
		if k == nil {
			continue // listener-prefixed and plugins' keys: nothing here reads them
		}
		if k.UpdateMode < least {
			warnings = append(warnings, Warning{Where: "dynamic config", Key: name, Message: "cannot be altered while the broker runs; ignored"})
			continue
		}
		if _, err := k.Parse(text); err != nil {
			warnings = append(warnings, Warning{Where: "dynamic config", Key: name, Message: err.Error() + "; ignored"})
			continue
		}
		out[name] = text
	}
	return out, warnings
}

// fill sets every field of the struct that v points to which has a kafka tag.
func (c *Config) fill(v reflect.Value) error {
	t := v.Type()
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("kafka")
		if name == "" {
			continue
		}
		k := configdef.Broker().Lookup(name)
		if k == nil {
			panic("config: field " + field.Name + " names an unknown key " + name)
		}
		value := c.Synonyms(name)[0]
		if value.Text == nil {
			continue
		}
		parsed, err := configdef.Broker().Lookup(value.Name).Parse(*value.Text)
		if err != nil {
			return &Error{Where: value.Where, Key: value.Name, Message: explain(k, err)}
		}
		v.Field(i).Set(reflect.ValueOf(parsed).Convert(field.Type))
	}
	return nil
}

// explain adds what is valid to a value error, where the reason does not say so already.
func explain(k *configdef.Key, err error) string {
	text := err.Error()
	if valid := k.Valid(); valid != "" && !strings.Contains(text, "must be one of") {
		text += " (valid: " + valid + ")"
	}
	var e *configdef.ValueError
	if errors.As(err, &e) && strings.Contains(e.Value, " #") {
		text += "; a comment needs a line of its own"
	}
	return text
}

// Static returns the text of a key as the file, the environment or the command line set it, and whether one did.
func (c *Config) Static(name string) (string, bool) {
	s, ok := c.values.static[name]
	return s.text, ok
}
