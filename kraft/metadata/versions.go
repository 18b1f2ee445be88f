package metadata

// RecordVersion returns the version in which Kafka 4.4 writes rec at the given metadata.version level.
//
// BrokerRegistrationChangeRecord is written in the lowest version that holds the fields which are set; the level only
// says whether they may be set at all, and that is the caller's business. A record that has a field set which the
// level does not allow (directories below 3.7-IV2, eligible leader replicas below 4.0-IV1) makes Append fail.
func RecordVersion(rec Record, level MetadataVersion) int16 {
	switch r := rec.(type) {
	case *RegisterBrokerRecord:
		return level.RegisterBrokerRecordVersion()
	case *PartitionRecord:
		return level.PartitionRecordVersion()
	case *PartitionChangeRecord:
		return level.PartitionChangeRecordVersion()
	case *BrokerRegistrationChangeRecord:
		switch {
		case r.CordonedLogDirs != nil:
			return 3
		case len(r.LogDirs) > 0:
			return 2
		case r.InControlledShutdown != 0:
			return 1
		}
	}
	lowest, _ := rec.Versions()
	return lowest
}

// RegisterBrokerRecordVersion returns the version of RegisterBrokerRecord at this level.
func (v MetadataVersion) RegisterBrokerRecordVersion() int16 {
	switch {
	case v >= MetadataVersion4_3IV0:
		return 4
	case v >= MetadataVersion3_7IV2:
		return 3
	case v >= MetadataVersion3_4IV0:
		return 2
	default:
		return 1
	}
}

// PartitionRecordVersion returns the version of PartitionRecord at this level.
func (v MetadataVersion) PartitionRecordVersion() int16 {
	switch {
	case v.SupportsELR():
		return 2
	case v.SupportsDirectories():
		return 1
	default:
		return 0
	}
}

// PartitionChangeRecordVersion returns the version of PartitionChangeRecord at this level.
func (v MetadataVersion) PartitionChangeRecordVersion() int16 { return v.PartitionRecordVersion() }
