// Package configdef holds the typed tables of every Kafka 4.4 configuration key: broker, topic, group
// and client-metrics configs with type, default, validator, importance and update mode.
//
// There is one table so that the three places that need it cannot disagree: the broker that reads
// server.properties, the controller that validates CreateTopics and IncrementalAlterConfigs, and the API
// that answers DescribeConfigs. The tables are data (*.tsv beside this file); Parse turns a text value
// into a Go value and reports what is wrong with it in the words that Kafka's clients know.
package configdef

import (
	"iter"
	"slices"
	"strings"
)

// Type is the type of a config value; its numbers are those of DescribeConfigs' config_type field (KIP-569).
type Type int8

// The types of config values.
const (
	Unknown  Type = 0
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// UpdateMode tells whether and how a broker config can be altered while the broker runs (KIP-226).
type UpdateMode int8

// The update modes.
const (
	ReadOnly    UpdateMode = iota // only in server.properties
	PerBroker                     // by a BROKER resource with a broker id
	ClusterWide                   // per broker or for all (resource name "")
	DynamicOnly                   // never in server.properties
)

// Key describes one config key.
type Key struct {
	Name string
	Type Type
	// Default is the default in text form; nil when Kafka's default is null or the key is required.
	Default *string
	// Required keys have no default and must be set.
	Required   bool
	Importance string // HIGH, MEDIUM or LOW
	UpdateMode UpdateMode
	// Internal keys work but are not listed by DescribeConfigs.
	Internal bool
	// Sensitive values are never shown (type PASSWORD).
	Sensitive bool
	// Synonyms are the broker keys that give this key its value when it is not set itself; the first one
	// that is set wins.
	Synonyms []Synonym
	// Doc says in a sentence what the key does.
	Doc string

	validate validator
	valid    string
	// distinct lists lose repeated elements.
	distinct bool
}

// Synonym is a broker key that another key falls back to.
type Synonym struct {
	Name string
	// Factor multiplies the synonym's number to give the key's unit (log.retention.hours x 3600000 = retention.ms).
	Factor int64
}

// Valid describes the valid values in words, for error messages; "" when every value of the type is valid.
func (k *Key) Valid() string {
	if k.valid == "-" {
		return ""
	}
	values, rest, isList := strings.Cut(k.valid, " duplicates rejected")
	switch {
	case !isList:
		return k.valid
	case values == "any" && strings.Contains(rest, "empty ok"):
		return "a list with commas between its elements"
	case values == "any":
		return "a list of at least one element, with commas between them"
	}
	return "a list of " + values
}

// Table is a set of keys, ordered by name.
type Table struct {
	keys   []*Key
	byName map[string]*Key
}

// Lookup returns the key of that name, or nil.
func (t *Table) Lookup(name string) *Key { return t.byName[name] }

// All yields the keys ordered by name.
func (t *Table) All() iter.Seq[*Key] { return slices.Values(t.keys) }

// Len is the number of keys.
func (t *Table) Len() int { return len(t.keys) }

// Nearest returns the key name closest to an unknown one, for "did you mean"; "" when none is near.
func (t *Table) Nearest(name string) string {
	return t.Near(name, len(name)/3)
}

// Near returns the key name closest to an unknown one when at most so many letters have to be changed; else "".
func (t *Table) Near(name string, letters int) string {
	best, bestDistance := "", letters+1
	for _, k := range t.keys {
		if d := distance(name, k.Name, bestDistance); d < bestDistance {
			best, bestDistance = k.Name, d
		}
	}
	return best
}

// distance is the edit distance of a and b, or limit when it is not below limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return min(row[len(b)], limit)
}
