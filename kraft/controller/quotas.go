package controller

import (
	"math"
	"net/netip"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
)

// quotaType is the type of a quota's value.
type quotaType int8

const (
	quotaDouble quotaType = iota
	quotaLong
	quotaInt
)

// userQuotas and ipQuotas are the quotas of users and clients, and of addresses (kafka-4.4/client-quota-configs.tsv).
var (
	userQuotas = map[string]quotaType{
		"producer_byte_rate": quotaLong, "consumer_byte_rate": quotaLong,
		"request_percentage": quotaDouble, "controller_mutation_rate": quotaDouble,
	}
	ipQuotas = map[string]quotaType{"connection_creation_rate": quotaInt}
)

// AlterClientQuotas decides AlterClientQuotas (49) v0-1: each entity alone.
func (d *Decider) AlterClientQuotas(req *kmsg.AlterClientQuotasRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	res := Result{Response: resp, Atomic: true}
	allowed := d.req.allowedOnCluster(opAlterConfigs)
	seen := make(map[image.QuotaEntity]int)
	for i := range req.Entries {
		e := &req.Entries[i]
		var records []metadata.Record
		var f *Fault
		key, text := quotaEntity(e.Entity)
		if !allowed {
			f = refuseBare(codeClusterAuthorization)
		} else if at, ok := seen[key]; ok {
			// The entity that came first keeps its records; the answer is about the one that is ignored.
			code, message := codeAndMessage(refuse(codeInvalidRequest, "Ignoring duplicate entity %s", text))
			resp.Entries[at].ErrorCode, resp.Entries[at].ErrorMessage = code, message
			continue
		} else {
			records, f = d.alterQuotas(e, key, text)
		}
		seen[key] = len(resp.Entries)
		out := kmsg.NewAlterClientQuotasResponseEntry()
		out.ErrorCode, out.ErrorMessage = codeAndMessage(f)
		for _, part := range e.Entity {
			p := kmsg.NewAlterClientQuotasResponseEntryEntity()
			p.Type, p.Name = part.Type, part.Name
			out.Entity = append(out.Entity, p)
		}
		resp.Entries = append(resp.Entries, out)
		res.Records = append(res.Records, records...)
	}
	if req.ValidateOnly {
		res.Records = nil
	}
	return res
}

// quotaEntity makes the image's key of an entity and its text in messages.
func quotaEntity(parts []kmsg.AlterClientQuotasRequestEntryEntity) (image.QuotaEntity, string) {
	var key []image.QuotaPart
	var text []string
	for _, p := range parts {
		part, name := image.QuotaPart{Type: p.Type, Default: p.Name == nil}, "null"
		if p.Name != nil {
			part.Name, name = *p.Name, *p.Name
		}
		key = append(key, part)
		text = append(text, p.Type+"="+name)
	}
	return image.NewQuotaEntity(key...), "ClientQuotaEntity(entries={" + strings.Join(text, ", ") + "})"
}

func (d *Decider) alterQuotas(
	e *kmsg.AlterClientQuotasRequestEntry, key image.QuotaEntity, text string,
) ([]metadata.Record, *Fault) {
	for i, op := range e.Ops {
		for _, other := range e.Ops[:i] {
			if other.Key == op.Key {
				return nil, refuse(codeInvalidRequest, "Duplicate quota key %s not updating quota for this entity %s",
					op.Key, text)
			}
		}
	}
	valid, f := quotaKeys(e.Entity)
	if f != nil {
		return nil, f
	}
	current := d.Image.ClientQuotas.Get(key)
	var out []metadata.Record
	for _, op := range e.Ops {
		old, isSet := current[op.Key]
		r := metadata.NewClientQuotaRecord()
		r.Key, r.Entity = op.Key, make([]metadata.ClientQuotaEntityData, len(e.Entity))
		for i, p := range e.Entity {
			r.Entity[i] = metadata.ClientQuotaEntityData{EntityType: p.Type, EntityName: p.Name}
		}
		if op.Remove {
			r.Remove = true
			if isSet {
				out = append(out, r)
			}
			continue
		}
		if f := checkQuota(valid, op.Key, op.Value); f != nil {
			return nil, f
		}
		r.Value = op.Value
		if !isSet || old != op.Value {
			out = append(out, r)
		}
	}
	return out, nil
}

// quotaKeys checks an entity and gives the quotas that it can have.
func quotaKeys(parts []kmsg.AlterClientQuotasRequestEntryEntity) (map[string]quotaType, *Fault) {
	if len(parts) == 0 {
		return nil, refuse(codeInvalidRequest, "Invalid empty client quota entity")
	}
	seen := make(map[string]*string, len(parts))
	for _, p := range parts {
		if _, ok := seen[p.Type]; ok {
			return nil, refuse(codeInvalidRequest, "Invalid client quota entity, duplicate entity entry %s", p.Type)
		}
		switch p.Type {
		case image.QuotaUser, image.QuotaClientID, image.QuotaIP:
		default:
			return nil, refuse(codeInvalidRequest, "Unhandled client quota entity type: %s", p.Type)
		}
		if p.Name != nil && *p.Name == "" {
			return nil, refuse(codeInvalidRequest, "Empty %s not supported", p.Type)
		}
		seen[p.Type] = p.Name
	}
	ip, ok := seen[image.QuotaIP]
	switch {
	case !ok:
		return userQuotas, nil
	case len(seen) > 1:
		return nil, refuse(codeInvalidRequest,
			"Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
	case ip != nil && !validIP(*ip):
		return nil, refuse(codeInvalidRequest, "%s is not a valid IP or resolvable host.", *ip)
	}
	return ipQuotas, nil
}

// validIP says whether a name can be that of an address. Kafka resolves host names here; a decision may not ask the
// network, so only "localhost" passes as a name.
func validIP(name string) bool {
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || name == "localhost"
}

func checkQuota(valid map[string]quotaType, key string, value float64) *Fault {
	kind, ok := valid[key]
	switch {
	case !ok:
		return refuse(codeInvalidRequest, "Invalid configuration key %s", key)
	case math.IsNaN(value) || math.IsInf(value, 0):
		return refuse(codeInvalidRequest, "Quota %s must be a finite number", key)
	case value <= 0:
		return refuse(codeInvalidRequest, "Quota %s must be greater than 0", key)
	case kind == quotaDouble:
		return nil
	case kind == quotaInt && value > math.MaxInt32:
		return refuse(codeInvalidRequest, "Proposed value for %s is too large for an INT.", key)
	case value > math.MaxInt64:
		return refuse(codeInvalidRequest, "Proposed value for %s is too large for a LONG.", key)
	case math.Abs(math.Mod(value, 1)) > 1e-6:
		return refuse(codeInvalidRequest, "%s cannot be a fractional value.", key)
	}
	return nil
}
