package coordinator_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gregor/internal/coordinator"
	"gregor/internal/timeline"
)

// pair is the record of the test machine, a map of strings.
type pair struct{ key, value string }

type pairCodec struct{}

func (pairCodec) Encode(dst []byte, p pair) (buf []byte, keyBytes int, err error) {
	if p.key == "unencodable" {
		return nil, 0, errors.New("cannot encode")
	}
	return append(append(dst, p.key...), p.value...), len(p.key), nil
}

func (pairCodec) Decode(key, value []byte) (pair, error) {
	switch string(key) {
	case "unknown":
		return pair{}, fmt.Errorf("%w: unknown", coordinator.ErrUnknownRecord)
	case "broken":
		return pair{}, errors.New("cannot decode")
	}
	return pair{string(key), string(value)}, nil
}

// machine is a map whose transactional writes count when they are committed.
type machine struct {
	h       coordinator.Handle[pair]
	data    *timeline.Map[string, string]
	pending *timeline.Map[int64, *timeline.Map[string, string]]
	// soft is state that is not rolled back.
	soft     []string
	loaded   int
	unloaded error
	waiting  []func(error)
}

func newMachine(h coordinator.Handle[pair]) *machine {
	return &machine{
		h: h, data: timeline.NewMap[string, string](h.Registry),
		pending: timeline.NewMap[int64, *timeline.Map[string, string]](h.Registry),
	}
}

func (m *machine) Replay(_ int64, producer coordinator.Producer, p pair) error {
	if p.value == "unacceptable" {
		return errors.New("contradiction")
	}
	if p.value == "panic" {
		panic("as asked")
	}
	data := m.data
	if producer != coordinator.NoProducer {
		var ok bool
		if data, ok = m.pending.Get(producer.ID); !ok {
			data = timeline.NewMap[string, string](m.h.Registry)
			m.pending.Set(producer.ID, data)
		}
	}
	if p.value == "" && producer == coordinator.NoProducer {
		data.Delete(p.key)
		return nil
	}
	data.Set(p.key, p.value)
	return nil
}

func (m *machine) ReplayEndTxn(producer coordinator.Producer, committed bool) {
	pending, ok := m.pending.Get(producer.ID)
	if !ok {
		return
	}
	m.pending.Delete(producer.ID)
	if committed {
		for k, v := range pending.All() {
			m.data.Set(k, v)
		}
	}
}

func (m *machine) Loaded() { m.loaded++ }

func (m *machine) Unloaded(err error) {
	m.unloaded = err
	for _, w := range m.waiting {
		w(err)
	}
}

func show(all map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return "{" + strings.Join(out, " ") + "}"
}

type (
	runtime = coordinator.Runtime[pair, *machine]
	options = coordinator.Options[pair, *machine]
	effect  = coordinator.Effect[pair]
)
