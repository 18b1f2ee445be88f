package controller

import (
	"errors"
	"slices"

	"gregor/internal/configdef"
	"gregor/kraft/metadata"
)

// Texts that Kafka writes into transaction records.
const (
	bootstrapTransaction = "Bootstrap records"
	failoverReason       = "Controller failover"
)

// ErrOpenTransaction says that the log has an open transaction at a metadata.version without transactions.
var ErrOpenTransaction = errors.New("metadata log has an open transaction, which its metadata.version does not support")

// Activation gives the records that a new active controller writes first. An empty log gets the bootstrap records of
// the format command in one transaction; an open transaction of the controller before is aborted.
func (d *Decider) Activation(emptyLog, openTransaction bool, bootstrap []metadata.Record) ([]metadata.Record, error) {
	level := d.features.MetadataVersion
	if emptyLog {
		level = bootstrapVersion(bootstrap)
	}
	var out []metadata.Record
	if openTransaction {
		if !level.SupportsTransactions() {
			return nil, ErrOpenTransaction
		}
		reason := failoverReason
		out = append(out, &metadata.AbortTransactionRecord{Reason: &reason})
	}
	if !emptyLog {
		return out, nil
	}
	if level.SupportsTransactions() {
		name := bootstrapTransaction
		out = append(out, &metadata.BeginTransactionRecord{Name: &name})
	}
	out = append(out, bootstrap...)
	if slices.ContainsFunc(bootstrap, isELRFeature) {
		value := d.StaticMinISR()
		out = append(out, configRecord(configResource{configBroker, ""}, minISRKey, &value))
	}
	if level.SupportsTransactions() {
		out = append(out, metadata.NewEndTransactionRecord())
	}
	return out, nil
}

func isELRFeature(rec metadata.Record) bool {
	r, ok := rec.(*metadata.FeatureLevelRecord)
	return ok && r.Name == metadata.FeatureELR && r.FeatureLevel > 0
}

func bootstrapVersion(bootstrap []metadata.Record) metadata.MetadataVersion {
	for _, rec := range bootstrap {
		if r, ok := rec.(*metadata.FeatureLevelRecord); ok && r.Name == metadata.FeatureMetadataVersion {
			return metadata.MetadataVersion(r.FeatureLevel)
		}
	}
	return metadata.MinMetadataVersion
}

// StaticMinISR is min.insync.replicas of this node's server.properties, or its default.
func (d *Decider) StaticMinISR() string {
	if d.cfg.Static != nil {
		if v, ok := d.cfg.Static(minISRKey); ok {
			return v
		}
	}
	if key := configdef.Broker().Lookup(minISRKey); key != nil && key.Default != nil {
		return *key.Default
	}
	return "1"
}
