package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/kraft/metadata"
	"gregor/protocol"
)

// Upgrade types of UpdateFeatures (KIP-778).
const (
	upgradeOnly     int8 = 1
	downgradeSafe   int8 = 2
	downgradeUnsafe int8 = 3
)

// featureUpdate is one wanted change of a finalized level.
type featureUpdate struct {
	name    string
	level   int16
	upgrade int8
}

// UpdateFeatures decides UpdateFeatures (57) v0-2: all updates or none. v0 has a flag for downgrades, v1 an upgrade
// type and validate-only, v2 no results of its own for each feature.
func (d *Decider) UpdateFeatures(req *kmsg.UpdateFeaturesRequest) Result {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	res := Result{Response: resp}
	if !d.req.allowedOnCluster(opAlter) {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(refuseBare(codeClusterAuthorization))
		return res
	}
	updates := featureUpdates(req)
	if f := d.updateFeatures(updates, &res); f != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(refuse(f.Code,
			"The update failed for all features since the following feature had an error: %s", f))
		return Result{Response: resp}
	}
	if req.ValidateOnly {
		res.Records, res.KRaftUpgrade = nil, 0
	} else if i := slices.IndexFunc(updates, func(u featureUpdate) bool { return u.name == metadata.FeatureELR }); i >= 0 &&
		updates[i].level > 0 {
		res.Records = append(res.Records, d.elrSafety()...)
	}
	if req.Version <= 1 {
		for _, u := range req.FeatureUpdates {
			r := kmsg.NewUpdateFeaturesResponseResult()
			message := protocol.ErrorMessage(codeNone)
			r.Feature, r.ErrorMessage = u.Feature, &message
			resp.Results = append(resp.Results, r)
		}
	}
	res.Atomic = true
	return res
}

func featureUpdates(req *kmsg.UpdateFeaturesRequest) []featureUpdate {
	out := make([]featureUpdate, 0, len(req.FeatureUpdates))
	for _, u := range req.FeatureUpdates {
		upgrade := u.UpgradeType
		if req.Version == 0 {
			upgrade = upgradeOnly // Kafka's controller does not look at allow_downgrade
		}
		out = append(out, featureUpdate{u.Feature, u.MaxVersionLevel, upgrade})
	}
	return out
}

func (d *Decider) updateFeatures(updates []featureUpdate, res *Result) *Fault {
	proposed := d.finalizedLevels()
	for _, u := range updates {
		proposed[u.name] = u.level
	}
	for _, u := range updates {
		if f := d.updateFeature(u, proposed, res); f != nil {
			return f
		}
	}
	return nil
}

func badUpdate(u featureUpdate, why string) *Fault {
	return refuse(codeInvalidUpdateVersion, "Invalid update version %d for feature %s. %s", u.level, u.name, why)
}

func (d *Decider) updateFeature(u featureUpdate, proposed map[string]int16, res *Result) *Fault {
	current := d.finalizedLevels()[u.name]
	switch {
	case u.upgrade < upgradeOnly || u.upgrade > downgradeUnsafe:
		return badUpdate(u, "The controller does not support the given upgrade type.")
	case u.level < 0:
		return badUpdate(u, "A feature version cannot be less than 0.")
	}
	if why := d.unsupported(u.name, u.level); why != "" {
		return badUpdate(u, why)
	}
	switch {
	case u.level < current && u.upgrade == upgradeOnly:
		return badUpdate(u, "Can't downgrade the version of this feature without setting the upgrade type to either "+
			"safe or unsafe downgrade.")
	case u.level > current && u.upgrade != upgradeOnly:
		return badUpdate(u, "Can't downgrade to a newer version.")
	case u.name == metadata.FeatureMetadataVersion:
		return d.updateMetadataVersion(u, res)
	case u.name == metadata.FeatureKRaftVersion:
		return updateKRaftVersion(u, current, res)
	}
	if why := unmetDependency(u, proposed); why != "" {
		return badUpdate(u, why)
	}
	res.Records = append(res.Records, &metadata.FeatureLevelRecord{Name: u.name, FeatureLevel: u.level})
	return nil
}

// unsupported says which node cannot run at a level; "" when all can.
func (d *Decider) unsupported(name string, level int16) string {
	if why := notInRange(level, "Local controller "+itoa(d.cfg.NodeID), d.cfg.Supported[name]); why != "" {
		return why
	}
	for b := range d.Image.Cluster.Brokers() {
		r, _ := b.Feature(name)
		if why := notInRange(level, "Broker "+itoa(b.ID), Range{r.Min, r.Max}); why != "" {
			return why
		}
	}
	if !d.features.SupportsControllerRegistration() {
		return ""
	}
	for c := range d.Image.Cluster.Controllers() {
		if c.ID == d.cfg.NodeID {
			continue
		}
		r, _ := c.Feature(name)
		if why := notInRange(level, "Controller "+itoa(c.ID), Range{r.Min, r.Max}); why != "" {
			return why
		}
	}
	if d.cfg.Voters == nil {
		return ""
	}
	for _, id := range d.cfg.Voters() {
		if id != d.cfg.NodeID && d.Image.Cluster.Controller(id) == nil {
			return "controller " + itoa(id) + " has not registered, and may not support this feature"
		}
	}
	return ""
}

func notInRange(level int16, who string, r Range) string {
	switch {
	case r.Contains(level):
		return ""
	case r.Max == 0:
		return who + " does not support this feature."
	}
	return who + " only supports versions " + r.String()
}

func (d *Decider) updateMetadataVersion(u featureUpdate, res *Result) *Fault {
	current, next := d.features.MetadataVersion, metadata.MetadataVersion(u.level)
	if !next.Valid() {
		return refuse(codeInvalidUpdateVersion, "Invalid metadata.version %d. Valid versions are from %d to %d.",
			u.level, metadata.MinMetadataVersion, metadata.LatestMetadataVersion)
	}
	if next < current && metadata.MetadataChanged(current, next) {
		why := "Refusing to perform the requested downgrade because it might delete metadata information."
		if u.upgrade == downgradeUnsafe {
			why = "Unsafe metadata downgrade is not supported in this version."
		}
		return refuse(codeInvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. %s",
			int16(current), int16(next), why)
	}
	res.Records = append(res.Records, &metadata.FeatureLevelRecord{Name: u.name, FeatureLevel: u.level})
	return nil
}

// updateKRaftVersion asks the quorum for a higher kraft.version; the log shows it as a control record, next to a no-op
// record that gives the answer an offset to wait for.
func updateKRaftVersion(u featureUpdate, current int16, res *Result) *Fault {
	switch {
	case u.upgrade == upgradeOnly:
		if u.level > current {
			res.KRaftUpgrade = u.level
		}
		res.Records = append(res.Records, metadata.NewNoOpRecord())
		return nil
	case u.level != current:
		return badUpdate(u, "Can't downgrade the version of this feature.")
	}
	return nil
}

// unmetDependency says on which other feature a level depends that is not high enough; "" when all are.
func unmetDependency(u featureUpdate, proposed map[string]int16) string {
	feature, ok := metadata.FeatureByName(u.name)
	if !ok {
		return "Feature " + u.name + " not found."
	}
	i := slices.IndexFunc(feature.Levels, func(l metadata.FeatureLevel) bool { return l.Level == u.level })
	if i < 0 {
		return "No feature:" + u.name + " with feature level " + itoa(u.level)
	}
	return DependencyProblem(u.name, feature.Levels[i], proposed)
}

// DependencyProblem says, in Kafka's words, which dependency of a feature level the proposed levels do not meet; ""
// when they meet all.
func DependencyProblem(name string, level metadata.FeatureLevel, proposed map[string]int16) string {
	for _, dep := range sortedKeys(level.DependsOn) {
		if need := level.DependsOn[dep]; proposed[dep] < need {
			return name + " could not be set to " + itoa(level.Level) + " because it depends on " + dep + " level " +
				itoa(need)
		}
	}
	return ""
}

// elrSafety gives the config records that ELR needs: min.insync.replicas must be set for the cluster and must not
// differ between brokers.
func (d *Decider) elrSafety() []metadata.Record {
	var out []metadata.Record
	if _, ok := d.Image.Configs.BrokerDefault()[minISRKey]; !ok {
		value := d.StaticMinISR()
		out = append(out, configRecord(configResource{configBroker, ""}, minISRKey, &value))
	}
	for name, configs := range d.Image.Configs.OfType(4) {
		if _, ok := configs[minISRKey]; ok && name != "" {
			out = append(out, configRecord(configResource{configBroker, name}, minISRKey, nil))
		}
	}
	return out
}
