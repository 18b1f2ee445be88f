package controller

import (
	"regexp"
	"strconv"
	"strings"

	"gregor/internal/configdef"
)

func validPattern(expr string) bool {
	_, err := regexp.Compile(expr)
	return err == nil
}

// groupBounds ties a group config to the broker configs that bound it.
type groupBounds struct{ key, min, max string }

var groupRanges = []groupBounds{
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"share.delivery.count.limit", "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"},
	{"share.partition.max.record.locks", "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"},
	{"share.assignment.interval.ms", "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"streams.session.timeout.ms", "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"},
	{"streams.num.standby.replicas", "", "group.streams.max.standby.replicas"},
	{"streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"},
	{"streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", ""},
	{"streams.num.warmup.replicas", "", "group.streams.max.warmup.replicas"},
}

// groupPairs are the session timeouts with the heartbeat intervals that must be shorter.
var groupPairs = [][2]string{
	{"consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"},
	{"share.session.timeout.ms", "share.heartbeat.interval.ms"},
	{"streams.session.timeout.ms", "streams.heartbeat.interval.ms"},
}

// checkGroupConfigs checks the overrides of a group against their types and the bounds the brokers set.
func (d *Decider) checkGroupConfigs(merged map[string]string) *Fault {
	if f := checkTypes(configdef.Group(), merged, "Unknown group config name", codeInvalidConfig); f != nil {
		return f
	}
	if tagsRepeat(merged["streams.rack.aware.assignment.tags"]) {
		return refuse(codeInvalidConfig, "streams.rack.aware.assignment.tags must not contain duplicate tag keys.")
	}
	for _, b := range groupRanges {
		if f := d.checkGroupRange(merged, b); f != nil {
			return f
		}
	}
	for _, pair := range groupPairs {
		session, isSet := d.groupInt(merged, pair[0])
		heartbeat, isSet2 := d.groupInt(merged, pair[1])
		if (isSet || isSet2) && session <= heartbeat {
			return refuse(codeInvalidConfig, "%s must be greater than %s", pair[0], pair[1])
		}
	}
	if strings.HasPrefix(merged["errors.deadletterqueue.topic.name"], "__") {
		return refuse(codeInvalidConfig, "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
	}
	return nil
}

func tagsRepeat(tags string) bool {
	list := splitList(tags)
	return len(dedup(list)) != len(list)
}

func (d *Decider) checkGroupRange(merged map[string]string, b groupBounds) *Fault {
	text, ok := merged[b.key]
	if !ok {
		return nil
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	lo, hasLo := d.brokerInt(b.min)
	hi, hasHi := d.brokerInt(b.max)
	switch {
	case hasLo && hasHi && (n < lo || n > hi):
		return refuse(codeInvalidConfig, "%s must be in the range %d to %d inclusive.", b.key, lo, hi)
	case hasHi && n > hi:
		return refuse(codeInvalidConfig, "%s must be less than or equal to %d", b.key, hi)
	case hasLo && n < lo:
		return refuse(codeInvalidConfig, "%s must be greater than or equal to %d", b.key, lo)
	}
	return nil
}

// brokerInt gives a broker config of this node as a number.
func (d *Decider) brokerInt(key string) (int64, bool) {
	if key == "" {
		return 0, false
	}
	def := configdef.Broker().Lookup(key)
	text, ok := "", false
	if d.cfg.Static != nil {
		text, ok = d.cfg.Static(key)
	}
	if !ok && def != nil && def.Default != nil {
		text = *def.Default
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// groupInt gives a group config as the group would use it, and whether the group sets it itself.
func (d *Decider) groupInt(merged map[string]string, key string) (int64, bool) {
	if text, ok := merged[key]; ok {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n, true
	}
	def := configdef.Group().Lookup(key)
	if def == nil || len(def.Synonyms) == 0 {
		return 0, false
	}
	n, _ := d.brokerInt(def.Synonyms[0].Name)
	return n, false
}
