package differential

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gregor/compat-tests/wire"
)

// field is one field of an answer: a name and a value, which is text, a list of nodes or a list of lists of nodes.
type field struct {
	name  string
	value any
}

// tree turns an answer into fields, with ids, times, addresses and directories replaced by what they stand for.
func (s *side) tree(resp any) any {
	return s.value("", reflect.ValueOf(resp).Elem())
}

func (s *side) value(name string, v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return s.value(name, v.Elem())
	case reflect.Struct:
		return s.fields(v)
	case reflect.Slice:
		return s.slice(name, v)
	case reflect.Array:
		return s.uuid(v)
	case reflect.String:
		return strconv.Quote(s.text(v.String()))
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	default:
		return s.number(name, v)
	}
}

func (s *side) fields(v reflect.Value) any {
	var out []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Name == "Version" || f.Name == "UnknownTags" {
			continue
		}
		out = append(out, field{f.Name, s.value(f.Name, v.Field(i))})
	}
	return out
}

func (s *side) slice(name string, v reflect.Value) any {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if v.IsNil() {
			return "null"
		}
		return s.bytes(name, v.Bytes())
	}
	if v.IsNil() {
		return "null"
	}
	out := make([]any, 0, v.Len())
	for i := range v.Len() {
		out = append(out, s.value(name, v.Index(i)))
	}
	return out
}

// bytes are shown as they are, but record batches by what they hold.
func (s *side) bytes(name string, b []byte) any {
	if name != "RecordBatches" {
		return fmt.Sprintf("% x", s.text(string(b)))
	}
	batches, err := wire.ParseBatches(b)
	var out strings.Builder
	fmt.Fprintf(&out, "%v:", err)
	for _, x := range batches {
		fmt.Fprintf(&out, " [%d epoch %d attributes %d time %s-%s producer %v %d %d, last %d:", x.BaseOffset, x.LeaderEpoch, x.Attributes, instant(x.BaseTimestamp), instant(x.MaxTimestamp),
			s.producer(x.ProducerID), x.ProducerEpoch, x.BaseSequence, *x.LastOffsetDelta)
		for _, r := range x.Records {
			fmt.Fprintf(&out, " %q=%q%v", r.Key, r.Value, r.Headers)
		}
		out.WriteString("]")
	}
	return out.String()
}

func (s *side) uuid(v reflect.Value) any {
	var id [16]byte
	reflect.Copy(reflect.ValueOf(&id).Elem(), v)
	if id == [16]byte{} {
		return "no id"
	}
	for name, known := range s.topics {
		if known == id {
			return "id of " + name
		}
	}
	if id == ([16]byte{0xff, 15: 1}) {
		return "nobody's id"
	}
	return "an id"
}

// memberID is a member id that the coordinator made up: the client id and a UUID.
var memberID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// base64ID is a UUID in a message.
var base64ID = regexp.MustCompile(`\b[A-Za-z0-9_-]{22}\b`)

func (s *side) text(t string) string {
	t = s.node.Anonymous(t)
	for name, id := range s.members {
		if id != "" {
			t = strings.ReplaceAll(t, id, "member "+name)
		}
	}
	t = memberID.ReplaceAllString(t, "UUID")
	return base64ID.ReplaceAllStringFunc(t, func(id string) string {
		if strings.ContainsAny(id, "0123456789_-") && strings.ToLower(id) != id {
			return "AN-ID"
		}
		return id
	})
}

func (s *side) producer(id int64) string {
	for name, known := range s.producers {
		if known == id {
			return "producer " + name
		}
	}
	return strconv.FormatInt(id, 10)
}

// instant hides a time that is now, more or less: it came from a clock.
func instant(millis int64) string {
	if d := time.Until(time.UnixMilli(millis)); d > -time.Hour && d < time.Hour {
		return "NOW"
	}
	return strconv.FormatInt(millis, 10)
}

func (s *side) number(name string, v reflect.Value) any {
	var n int64
	switch {
	case v.CanInt():
		n = v.Int()
	case v.CanUint():
		n = int64(v.Uint())
	default:
		return fmt.Sprint(v.Interface())
	}
	text := strconv.FormatInt(n, 10)
	switch {
	case name == "Port" && strings.HasSuffix(s.node.Addr, ":"+text):
		return "PORT"
	case name == "Port" && strings.HasSuffix(s.node.ControllerAddr, ":"+text):
		return "CONTROLLERPORT"
	case name == "ProducerID":
		return s.producer(n)
	case name == "SessionID" && n != 0:
		if n == int64(s.session) {
			return "the session"
		}
		return "a session"
	case v.Kind() == reflect.Int64:
		return instant(n)
	}
	return text
}

// compare lists where two trees differ.
func compare(path string, a, b any) []string {
	if mayDiffer(path) {
		return nil
	}
	switch x := a.(type) {
	case []field:
		y, ok := b.([]field)
		if !ok || len(x) != len(y) {
			return []string{fmt.Sprintf("%s: gregor %v, kafka %v", path, a, b)}
		}
		if namesWhatKafkaDoesNot(path, x, y) {
			return nil
		}
		var out []string
		for i := range x {
			out = append(out, compare(path+"."+x[i].name, x[i].value, y[i].value)...)
		}
		return out
	case []any:
		y, ok := b.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s: gregor %v, kafka %v", path, a, b)}
		}
		return compareLists(path, x, y)
	}
	if !reflect.DeepEqual(a, b) {
		return []string{fmt.Sprintf("%s: gregor %v, kafka %v", path, a, b)}
	}
	return nil
}

func compareLists(path string, x, y []any) []string {
	if slices.Contains(regrouped, path) {
		x, y = regroup(x), regroup(y)
	}
	if anyOrder(path) {
		x, y = sorted(x), sorted(y)
	}
	if len(x) != len(y) {
		return []string{fmt.Sprintf("%s: gregor has %d: %v, kafka has %d: %v", path, len(x), x, len(y), y)}
	}
	var out []string
	for i := range x {
		out = append(out, compare(path+"[]", x[i], y[i])...)
	}
	return out
}

// regroup joins the partitions of topics that are there several times.
func regroup(topics []any) []any {
	var out []any
	at := map[string]int{}
	for _, topic := range topics {
		var partitions []any
		rest := []field{}
		fields, _ := topic.([]field)
		for _, f := range fields {
			if list, ok := f.value.([]any); ok && f.name == "Partitions" {
				partitions = list
				continue
			}
			rest = append(rest, f)
		}
		key := fmt.Sprint(rest)
		i, seen := at[key]
		if !seen {
			i = len(out)
			at[key] = i
			out = append(out, append(rest, field{"Partitions", []any{}}))
		}
		group, _ := out[i].([]field)
		joined, _ := group[len(group)-1].value.([]any)
		group[len(group)-1].value = slices.Concat(joined, partitions)
	}
	return out
}

func sorted(in []any) []any {
	return slices.SortedFunc(slices.Values(in), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}
