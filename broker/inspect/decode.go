package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	groups "gregor/groupcoord/schema"
	"gregor/kraft/metadata"
	"gregor/protocol/record"
	"gregor/protocol/wire"
	txns "gregor/txncoord/schema"
)

// tombstone is what stands for the value of a record that deletes its key.
const tombstone = "<DELETE>"

// shown is how a record's key and value are printed; what is nil is left out.
type shown struct{ key, payload *string }

// decode renders a data record. What cannot be read is told in the place of the key, or of the payload where keys have no
// meaning, and the others go on.
func (d *dumper) decode(r record.Record) shown {
	switch d.Decoder {
	case MetadataDecoder:
		return shown{payload: new(metadataText(r))}
	case RemoteDecoder:
		return shown{payload: new(remoteText(r))}
	case OffsetsDecoder:
		return coordinatorShown(r, offsetsText)
	case TxnDecoder:
		return coordinatorShown(r, txnText)
	case ShareDecoder:
		return coordinatorShown(r, shareText)
	case NoDecoder, PlainDecoder:
	}
	return shown{key: d.Key.text(r.Key), payload: d.Value.text(r.Value)}
}

func metadataText(r record.Record) string {
	rec, version, err := metadata.DecodeVersion(r.Value)
	if err != nil {
		return fmt.Sprintf("Error at %d, skipping. %v", r.Offset, err)
	}
	return fmt.Sprintf(`{"type":"%s","version":%d,"data":%s}`, enumName(rec.MessageName()), version, rec.AppendJSON(nil, version))
}

var errNoKey = errors.New("the record has no key")

// coordinatorShown renders a record of a coordinator's topic.
func coordinatorShown(r record.Record, show func(r record.Record) (key, payload string, err error)) shown {
	key, payload, err := "", "", errNoKey
	if r.Key != nil {
		key, payload, err = show(r)
	}
	switch {
	case errors.Is(err, wire.ErrUnknownType):
		return shown{key: new(fmt.Sprintf("Unknown record type %d at offset %d, skipping.", valueVersion(r.Key), r.Offset))}
	case err != nil:
		return shown{key: new(fmt.Sprintf("Error at offset %d, skipping. %v", r.Offset, err))}
	}
	return shown{key: &key, payload: &payload}
}

// enumName turns TopicRecord into TOPIC_RECORD, as Kafka names its record types.
func enumName(name string) string {
	var b strings.Builder
	for i, c := range name {
		if c >= 'A' && c <= 'Z' && i > 0 {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToUpper(string(c)))
	}
	return b.String()
}

// jsonMessage is a generated message.
type jsonMessage interface {
	AppendJSON(dst []byte, version int16) []byte
	RecordType() int16
}

func keyJSON(k jsonMessage) string {
	return fmt.Sprintf(`{"type":"%d","data":%s}`, k.RecordType(), k.AppendJSON(nil, 0))
}

func valueJSON(version int16, data []byte) string {
	return fmt.Sprintf(`{"version":"%d","data":%s}`, version, data)
}

// valueVersion is the version that a coordinator value begins with.
func valueVersion(value []byte) int16 {
	if len(value) < 2 {
		return -1
	}
	return int16(value[0])<<8 | int16(value[1])
}

func offsetsText(r record.Record) (key, payload string, err error) {
	k, err := groups.DecodeOffsetsKey(r.Key)
	if err != nil {
		return "", "", err
	}
	if r.Value == nil {
		return keyJSON(k), tombstone, nil
	}
	v, err := groups.DecodeOffsetsValue(k.RecordType(), r.Value)
	if err != nil {
		return "", "", err
	}
	version := valueVersion(r.Value)
	data := v.AppendJSON(nil, version)
	if g, ok := v.(*groups.GroupMetadataValue); ok && g.ProtocolType == "consumer" {
		data = withConsumerProtocol(data)
	}
	return keyJSON(k), valueJSON(version, data), nil
}

// orderedMember is a member of a GroupMetadataValue in the order of its fields.
type orderedMember struct {
	MemberID         string          `json:"memberId"`
	GroupInstanceID  *string         `json:"groupInstanceId"`
	ClientID         string          `json:"clientId"`
	ClientHost       string          `json:"clientHost"`
	RebalanceTimeout json.RawMessage `json:"rebalanceTimeout,omitempty"`
	SessionTimeout   json.RawMessage `json:"sessionTimeout"`
	Subscription     json.RawMessage `json:"subscription"`
	Assignment       json.RawMessage `json:"assignment"`
}

// withConsumerProtocol replaces the bytes of members' subscriptions and assignments by what they hold, when they can
// be read; else they stay as base64.
func withConsumerProtocol(data []byte) []byte {
	head, members, ok := strings.Cut(string(data), `"members":`)
	if !ok {
		return data
	}
	dec := json.NewDecoder(strings.NewReader(members))
	var list []orderedMember
	if err := dec.Decode(&list); err != nil {
		return data
	}
	rest := members[dec.InputOffset():]
	for i := range list {
		list[i].Subscription = rendered(list[i].Subscription, func(b []byte) (jsonData, int16, error) {
			m, v, err := groups.DecodeSubscription(b)
			return m, v, err
		})
		list[i].Assignment = rendered(list[i].Assignment, func(b []byte) (jsonData, int16, error) {
			m, v, err := groups.DecodeAssignment(b)
			return m, v, err
		})
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(list); err != nil {
		return data
	}
	return []byte(head + `"members":` + strings.TrimSuffix(out.String(), "\n") + rest)
}

// jsonData is a message without a type.
type jsonData interface {
	AppendJSON(dst []byte, version int16) []byte
}

// rendered turns a base64 string into the message in its bytes; what cannot be read stays.
func rendered(quoted json.RawMessage, decode func([]byte) (jsonData, int16, error)) json.RawMessage {
	var raw []byte
	if err := json.Unmarshal(quoted, &raw); err != nil || len(raw) == 0 {
		return quoted
	}
	m, version, err := decode(raw)
	if err != nil {
		return quoted
	}
	return m.AppendJSON(nil, version)
}

func txnText(r record.Record) (key, payload string, err error) {
	k, err := txns.DecodeKey(r.Key)
	if err != nil {
		return "", "", err
	}
	if r.Value == nil {
		return keyJSON(k), tombstone, nil
	}
	v, err := txns.DecodeValue(k.RecordType(), r.Value)
	if err != nil {
		return "", "", err
	}
	version := valueVersion(r.Value)
	data := string(v.AppendJSON(nil, version))
	if t, ok := v.(*txns.TransactionLogValue); ok {
		data = strings.Replace(data, fmt.Sprintf(`"transactionStatus":%d`, t.TransactionStatus), fmt.Sprintf(`"transactionStatus":%q`, txnState(t.TransactionStatus)), 1)
	}
	return keyJSON(k), valueJSON(version, []byte(data)), nil
}

// txnState names the state of a transaction.
func txnState(code int8) string {
	names := []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
	if code < 0 || int(code) >= len(names) {
		return strconv.Itoa(int(code))
	}
	return names[code]
}

func shareText(r record.Record) (key, payload string, err error) {
	k, err := groups.DecodeShareStateKey(r.Key)
	if err != nil {
		return "", "", err
	}
	if r.Value == nil {
		return keyJSON(k), tombstone, nil
	}
	v, err := groups.DecodeShareStateValue(k.RecordType(), r.Value)
	if err != nil {
		return "", "", err
	}
	return keyJSON(k), valueJSON(valueVersion(r.Value), v.AppendJSON(nil, valueVersion(r.Value))), nil
}

// controlText renders a control record.
func controlText(r record.Record) string {
	kind, err := record.ParseControlKey(r.Key)
	if err != nil {
		return " controlType: unreadable (" + err.Error() + ")"
	}
	switch kind {
	case record.ControlAbort, record.ControlCommit:
		m, err := record.ParseEndTxnMarker(r.Value)
		if err != nil {
			return " endTxnMarker: unreadable (" + err.Error() + ")"
		}
		name := "ABORT"
		if kind == record.ControlCommit {
			name = "COMMIT"
		}
		return fmt.Sprintf(" endTxnMarker: %s coordinatorEpoch: %d", name, m.CoordinatorEpoch)
	case record.ControlLeaderChange:
		return raftText("LeaderChange:", &metadata.LeaderChangeMessage{}, r.Value)
	case record.ControlSnapshotHeader:
		return raftText("SnapshotHeader", &metadata.SnapshotHeaderRecord{}, r.Value)
	case record.ControlSnapshotFooter:
		return raftText("SnapshotFooter", &metadata.SnapshotFooterRecord{}, r.Value)
	case record.ControlKRaftVersion:
		return raftText("KRaftVersion", &metadata.KRaftVersionRecord{}, r.Value)
	case record.ControlKRaftVoters:
		return raftText("KRaftVoters", &metadata.VotersRecord{}, r.Value)
	}
	return fmt.Sprintf(" controlType: %d", kind)
}

// raftMessage is the value of a control record of the metadata log. Its first field is its version.
type raftMessage interface {
	jsonData
	Decode(b []byte, version int16) error
}

func raftText(name string, m raftMessage, value []byte) string {
	version := valueVersion(value)
	if err := m.Decode(value, version); err != nil {
		return " " + name + " unreadable (" + err.Error() + ")"
	}
	return " " + name + " " + string(m.AppendJSON(nil, version))
}
