package image

import (
	"fmt"
	"maps"
	"slices"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// owned returns the section as the delta's own copy.
func owned[S any](section **S, own *bool) *S {
	if !*own {
		c := **section
		*section, *own = &c, true
	}
	return *section
}

func (d *Delta) replayFeatureLevel(r *metadata.FeatureLevelRecord) error {
	switch r.Name {
	case metadata.FeatureMetadataVersion:
		v := metadata.MetadataVersion(r.FeatureLevel)
		if !v.Valid() {
			return fmt.Errorf("%w: metadata.version %d is not one of %d to %d", ErrInconsistent, r.FeatureLevel,
				metadata.MinMetadataVersion, metadata.LatestMetadataVersion)
		}
		owned(&d.next.Features, &d.own.features).version = v
	case metadata.FeatureKRaftVersion:
		return nil // the quorum keeps it in control records
	default:
		f := owned(&d.next.Features, &d.own.features)
		if r.FeatureLevel == 0 {
			f.levels.remove(d.edit, r.Name)
		} else {
			f.levels.set(d.edit, r.Name, r.FeatureLevel)
		}
	}
	mark(&d.features, r.Name)
	return nil
}

func (d *Delta) replayCluster(rec metadata.Record) error {
	switch r := rec.(type) {
	case *metadata.RegisterBrokerRecord:
		d.setBroker(brokerOf(r))
	case *metadata.UnregisterBrokerRecord:
		d.removeBroker(r.BrokerID)
	case *metadata.FenceBrokerRecord:
		return d.changeBroker(r.ID, r.Epoch, func(b *Broker) error { b.Fenced = true; return nil })
	case *metadata.UnfenceBrokerRecord:
		return d.changeBroker(r.ID, r.Epoch, func(b *Broker) error { b.Fenced = false; return nil })
	case *metadata.BrokerRegistrationChangeRecord:
		return d.changeBroker(r.BrokerID, r.BrokerEpoch, func(b *Broker) error { return b.change(r) })
	case *metadata.RegisterControllerRecord:
		c := owned(&d.next.Cluster, &d.own.cluster)
		c.controllers.set(d.edit, r.ControllerID, controllerOf(r))
		mark(&d.controllers, r.ControllerID)
	case *metadata.UnregisterControllerRecord:
		c := owned(&d.next.Cluster, &d.own.cluster)
		c.controllers.remove(d.edit, r.ControllerID)
		mark(&d.controllers, r.ControllerID)
	}
	return nil
}

func brokerOf(r *metadata.RegisterBrokerRecord) *Broker {
	b := &Broker{
		ID: r.BrokerID, Epoch: r.BrokerEpoch, Incarnation: r.IncarnationID, Rack: r.Rack, Fenced: r.Fenced,
		InControlledShutdown: r.InControlledShutdown, MigratingZkBroker: r.IsMigratingZkBroker,
		Directories: sortedDirectories(r.LogDirs), CordonedDirectories: r.CordonedLogDirs,
	}
	for _, e := range r.EndPoints {
		b.Endpoints = append(b.Endpoints, Endpoint{e.Name, e.Host, e.Port, e.SecurityProtocol})
	}
	slices.SortFunc(b.Endpoints, compareEndpoints)
	for _, f := range r.Features {
		b.Features = append(b.Features, FeatureRange{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
	}
	slices.SortFunc(b.Features, compareFeatures)
	return b
}

func controllerOf(r *metadata.RegisterControllerRecord) *Controller {
	c := &Controller{ID: r.ControllerID, Incarnation: r.IncarnationID, ZkMigrationReady: r.ZkMigrationReady}
	for _, e := range r.EndPoints {
		c.Endpoints = append(c.Endpoints, Endpoint{e.Name, e.Host, e.Port, e.SecurityProtocol})
	}
	slices.SortFunc(c.Endpoints, compareEndpoints)
	for _, f := range r.Features {
		c.SupportedFeatures = append(c.SupportedFeatures,
			FeatureRange{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
	}
	slices.SortFunc(c.SupportedFeatures, compareFeatures)
	return c
}

func sortedDirectories(dirs []protocol.UUID) []protocol.UUID {
	return slices.SortedFunc(slices.Values(dirs), compareDirectories)
}

// change applies what the record sets: -1, 0, 1 are clear, no change, set; InControlledShutdown cannot be cleared.
func (b *Broker) change(r *metadata.BrokerRegistrationChangeRecord) error {
	switch r.Fenced {
	case 1:
		b.Fenced = true
	case -1:
		b.Fenced = false
	case 0:
	default:
		return fmt.Errorf("%w: fenced %d of broker %d", ErrInconsistent, r.Fenced, r.BrokerID)
	}
	switch r.InControlledShutdown {
	case 1:
		b.InControlledShutdown = true
	case 0:
	default:
		return fmt.Errorf("%w: inControlledShutdown %d of broker %d", ErrInconsistent, r.InControlledShutdown, r.BrokerID)
	}
	if len(r.LogDirs) > 0 {
		b.Directories = sortedDirectories(r.LogDirs)
	}
	if r.CordonedLogDirs != nil {
		b.CordonedDirectories = r.CordonedLogDirs
	}
	return nil
}

func (d *Delta) changeBroker(id int32, epoch int64, change func(*Broker) error) error {
	old := d.next.Cluster.Broker(id)
	if old == nil {
		return fmt.Errorf("%w: broker %d is not registered", ErrInconsistent, id)
	}
	if old.Epoch != epoch {
		return fmt.Errorf("%w: broker %d has epoch %d, the record says %d", ErrInconsistent, id, old.Epoch, epoch)
	}
	b := *old
	if err := change(&b); err != nil {
		return err
	}
	if !b.equal(old) {
		d.setBroker(&b)
	}
	return nil
}

func (d *Delta) setBroker(b *Broker) {
	c := owned(&d.next.Cluster, &d.own.cluster)
	if old := c.Broker(b.ID); old != nil && old.Fenced {
		c.fenced--
	}
	if b.Fenced {
		c.fenced++
	}
	c.brokers.set(d.edit, b.ID, b)
	mark(&d.brokers, b.ID)
}

func (d *Delta) removeBroker(id int32) {
	c := owned(&d.next.Cluster, &d.own.cluster)
	if old := c.Broker(id); old != nil && old.Fenced {
		c.fenced--
	}
	c.brokers.remove(d.edit, id)
	mark(&d.brokers, id)
}

// replayConfig sets a config, or removes it if the value is null.
func (d *Delta) replayConfig(r *metadata.ConfigRecord) {
	resource := ConfigResource{Type: ResourceType(r.ResourceType), Name: r.ResourceName}
	c := owned(&d.next.Configs, &d.own.configs)
	m := maps.Clone(c.Get(resource))
	if r.Value != nil {
		if m == nil {
			m = map[string]string{}
		}
		m[r.Name] = *r.Value
	} else {
		delete(m, r.Name)
	}
	if len(m) > 0 {
		c.resources.set(d.edit, resource, m)
	} else {
		c.resources.remove(d.edit, resource)
	}
	mark(&d.configs, resource)
}

func (d *Delta) replayClientQuota(r *metadata.ClientQuotaRecord) error {
	parts := make([]QuotaPart, 0, len(r.Entity))
	for _, e := range r.Entity {
		if slices.ContainsFunc(parts, func(p QuotaPart) bool { return p.Type == e.EntityType }) {
			return fmt.Errorf("%w: quota entity with two parts of type %q", ErrInconsistent, e.EntityType)
		}
		p := QuotaPart{Type: e.EntityType, Default: e.EntityName == nil}
		if e.EntityName != nil {
			p.Name = *e.EntityName
		}
		parts = append(parts, p)
	}
	entity := NewQuotaEntity(parts...)
	q := owned(&d.next.ClientQuotas, &d.own.quotas)
	m := maps.Clone(q.Get(entity))
	if r.Remove {
		delete(m, r.Key)
	} else {
		if m == nil {
			m = map[string]float64{}
		}
		m[r.Key] = r.Value
	}
	if len(m) > 0 {
		q.entities.set(d.edit, entity, m)
	} else {
		q.entities.remove(d.edit, entity)
	}
	mark(&d.quotas, entity)
	return nil
}

func (d *Delta) replaySecurity(rec metadata.Record) error {
	switch r := rec.(type) {
	case *metadata.AccessControlEntryRecord:
		acl := &ACL{
			ID: r.ID, ResourceType: r.ResourceType, ResourceName: r.ResourceName, PatternType: r.PatternType,
			Principal: r.Principal, Host: r.Host, Operation: r.Operation, PermissionType: r.PermissionType,
		}
		owned(&d.next.ACLs, &d.own.acls).entries.set(d.edit, r.ID, acl)
		mark(&d.acls, r.ID)
	case *metadata.RemoveAccessControlEntryRecord:
		if !owned(&d.next.ACLs, &d.own.acls).entries.remove(d.edit, r.ID) {
			return fmt.Errorf("%w: no access control entry %s", ErrInconsistent, r.ID)
		}
		mark(&d.acls, r.ID)
	case *metadata.UserScramCredentialRecord:
		user := ScramUser{Mechanism: ScramMechanism(r.Mechanism), Name: r.Name}
		c := &ScramCredential{Salt: r.Salt, StoredKey: r.StoredKey, ServerKey: r.ServerKey, Iterations: r.Iterations}
		owned(&d.next.Scram, &d.own.scram).credentials.set(d.edit, user, c)
		mark(&d.scram, user)
	case *metadata.RemoveUserScramCredentialRecord:
		user := ScramUser{Mechanism: ScramMechanism(r.Mechanism), Name: r.Name}
		owned(&d.next.Scram, &d.own.scram).credentials.remove(d.edit, user)
		mark(&d.scram, user)
	case *metadata.DelegationTokenRecord:
		t := &DelegationToken{
			ID: r.TokenID, Owner: r.Owner, Requester: r.Requester, Renewers: r.Renewers, IssueMillis: r.IssueTimestamp,
			MaxMillis: r.MaxTimestamp, ExpirationMillis: r.ExpirationTimestamp,
		}
		owned(&d.next.DelegationTokens, &d.own.tokens).tokens.set(d.edit, t.ID, t)
		mark(&d.tokens, t.ID)
	case *metadata.RemoveDelegationTokenRecord:
		owned(&d.next.DelegationTokens, &d.own.tokens).tokens.remove(d.edit, r.TokenID)
		mark(&d.tokens, r.TokenID)
	default:
		return fmt.Errorf("%w: a record that the image does not know", ErrInconsistent)
	}
	return nil
}
