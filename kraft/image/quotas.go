package image

import (
	"encoding/binary"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// Types of quota entities.
const (
	QuotaUser     = "user"
	QuotaClientID = "client-id"
	QuotaIP       = "ip"
)

// QuotaPart is a part of a quota entity: a user, a client id, an ip address.
type QuotaPart struct {
	Type string
	// Name is empty if Default is set.
	Name string
	// Default stands for all names that have no quota of their own.
	Default bool
}

// QuotaEntity is what a quota applies to. It is comparable.
type QuotaEntity struct {
	// key is the parts by type, each with its length before it.
	key string
}

// NewQuotaEntity makes an entity of parts with different types.
func NewQuotaEntity(parts ...QuotaPart) QuotaEntity {
	parts = slices.SortedFunc(slices.Values(parts), func(a, b QuotaPart) int { return strings.Compare(a.Type, b.Type) })
	var key []byte
	for _, p := range parts {
		key = binary.AppendUvarint(key, uint64(len(p.Type)))
		key = append(key, p.Type...)
		if p.Default {
			key = append(key, 0)
			continue
		}
		key = binary.AppendUvarint(key, uint64(len(p.Name))+1)
		key = append(key, p.Name...)
	}
	return QuotaEntity{key: string(key)}
}

// Parts iterates over the parts by type.
func (e QuotaEntity) Parts() iter.Seq[QuotaPart] {
	return func(yield func(QuotaPart) bool) {
		for rest := e.key; rest != ""; {
			var p QuotaPart
			n, size := uvarint(rest)
			p.Type, rest = rest[size:size+int(n)], rest[size+int(n):]
			n, size = uvarint(rest)
			if n == 0 {
				p.Default = true
				rest = rest[size:]
			} else {
				p.Name, rest = rest[size:size+int(n)-1], rest[size+int(n)-1:]
			}
			if !yield(p) {
				return
			}
		}
	}
}

// uvarint is binary.Uvarint of a string that this package wrote.
func uvarint(s string) (v uint64, size int) {
	for i := range len(s) {
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, len(s)
}

// Part returns the part of a type.
func (e QuotaEntity) Part(partType string) (QuotaPart, bool) {
	for p := range e.Parts() {
		if p.Type == partType {
			return p, true
		}
	}
	return QuotaPart{}, false
}

// String returns the entity as Kafka's tools write it, like "user=alice, client-id=<default>".
func (e QuotaEntity) String() string {
	var s []string
	for p := range e.Parts() {
		name := p.Name
		if p.Default {
			name = "<default>"
		}
		s = append(s, p.Type+"="+name)
	}
	return strings.Join(s, ", ")
}

// ClientQuotas holds the quotas of entities. Entities without any are absent. The maps, by quota name
// ("producer_byte_rate"), are shared and must not be changed.
type ClientQuotas struct {
	entities tree[QuotaEntity, map[string]float64]
}

func emptyClientQuotas() *ClientQuotas {
	return &ClientQuotas{entities: newTree[QuotaEntity, map[string]float64](compareEntities)}
}

func compareEntities(a, b QuotaEntity) int { return strings.Compare(a.key, b.key) }

// Get returns the quotas of exactly this entity, nil if there are none.
func (q *ClientQuotas) Get(e QuotaEntity) map[string]float64 {
	m, _ := q.entities.get(e)
	return m
}

// All iterates over the entities that have quotas, in a fixed order.
func (q *ClientQuotas) All() iter.Seq2[QuotaEntity, map[string]float64] { return q.entities.all() }

// Len returns the number of entities that have quotas.
func (q *ClientQuotas) Len() int { return q.entities.len() }

func equalQuotas(a, b map[string]float64) bool {
	return maps.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

func (q *ClientQuotas) equal(o *ClientQuotas) bool {
	return equalTrees(&q.entities, &o.entities, equalQuotas)
}
