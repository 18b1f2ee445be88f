package timeline

// Value is a single value with a newest and a committed state. The zero value
// is not usable; make one with [NewValue].
type Value[V any] struct {
	registry *Registry
	initial  V
	version[V]
}

// NewValue returns a value that belongs to registry; initial is what every view
// sees that is older than the first Set.
func NewValue[V any](registry *Registry, initial V) *Value[V] {
	return &Value[V]{registry: registry, initial: initial, version: version[V]{value: initial, present: true}}
}

// Get returns the newest value.
func (v *Value[V]) Get() V { return v.value }

// GetCommitted returns the value of the committed state.
func (v *Value[V]) GetCommitted() V {
	if at := v.at(v.registry.committedEpoch()); at != nil {
		return at.value
	}
	return v.initial
}

// Set makes value the newest.
func (v *Value[V]) Set(value V) {
	if v.epoch != v.registry.epoch {
		older := v.version
		v.version = version[V]{epoch: v.registry.epoch, present: true, older: &older}
		v.registry.touched(v)
	}
	v.value = value
}

func (v *Value[V]) trim(epoch uint64) { v.version.trim(epoch) }

func (v *Value[V]) revert(epoch uint64) {
	if v.epoch <= epoch {
		return
	}
	if at := v.at(epoch); at != nil {
		v.version = *at
		return
	}
	v.version = version[V]{value: v.initial, present: true}
}
