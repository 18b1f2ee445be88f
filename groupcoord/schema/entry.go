package schema

// Record is one record of a coordinator topic, decoded. A nil Value is a
// tombstone; Version is that of the value.
type Record struct {
	Key     Key
	Value   Value
	Version int16
}

// Tombstone returns the record that deletes what is under key.
func Tombstone(key Key) Record { return Record{Key: key} }
