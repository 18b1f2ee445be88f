package groups

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/compat-tests/harness"
	"gregor/compat-tests/wire"
)

// burstsVariable is how many bursts of requests the test of timers plays.
const burstsVariable = "GREGOR_GROUPS_BURSTS"

// The timers of a sequence with bursts: a burst ends long before the first timer that it set can fire, and the pause after
// it ends between the times at which such timers fire (multiples of half a session), so that no request races with a timer.
const (
	shortSession   = 3 * time.Second
	shortRebalance = shortSession / 2
	burst          = 400 * time.Millisecond
	pause          = 7 * shortSession / 6
)

// shortTimers let the timers fire.
func shortTimers() harness.Properties {
	out := maps.Clone(longTimers)
	out["group.min.session.timeout.ms"] = "1000"
	out["group.consumer.min.session.timeout.ms"] = "1000"
	out["group.consumer.session.timeout.ms"] = strconv.FormatInt(shortSession.Milliseconds(), 10)
	out["group.consumer.min.heartbeat.interval.ms"] = "1000"
	out["group.consumer.heartbeat.interval.ms"] = "1000"
	return out
}

// TestRandomRequestsAndTimersEndAsInKafka plays bursts of requests with pauses in which sessions end, members that have ids
// but have not joined are forgotten, and rebalances run out of time.
func TestRandomRequestsAndTimersEndAsInKafka(t *testing.T) {
	gregor, kafka, ids := twins(t, shortTimers(), randomTopics)
	for _, seed := range seeds(t)[:1+min(1, setting(t, roundsVariable, 2)-1)] {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			d := newDriver(t, seed, ids, gregor, kafka)
			d.sessionMillis, d.rebalanceMillis = int32(shortSession.Milliseconds()), int32(shortRebalance.Milliseconds())
			for range setting(t, burstsVariable, 6) {
				for end := time.Now().Add(burst); time.Now().Before(end); d.steps++ {
					d.must(d.step())
				}
				d.log = append(d.log, fmt.Sprintf("   %v pass", pause))
				time.Sleep(pause)
				d.must(d.compareFreed())
				d.must(d.describeAll())
				d.must(d.renewPatterns())
			}
			d.report()
		})
	}
}

// renewPatterns puts new groups into the place of those with patterns.
func (d *driver) renewPatterns() error {
	for _, name := range slices.Clone(d.names) {
		if g := d.groups[name]; g.patterns {
			if err := d.clear(g); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeAll compares what has become of all groups.
func (d *driver) describeAll() error {
	for _, name := range d.names {
		g := d.groups[name]
		if g == nil {
			continue // the sides parted over it just now
		}
		for _, build := range []func() kmsg.Request{
			func() kmsg.Request {
				req := wire.At(kmsg.NewPtrDescribeGroupsRequest(), 6)
				req.Groups = []string{name}
				return req
			},
			func() kmsg.Request {
				req := wire.At(kmsg.NewPtrConsumerGroupDescribeRequest(), 1)
				req.Groups = []string{name}
				return req
			},
		} {
			if d.groups[name] == nil {
				break
			}
			if err := d.play(d.both("after the pause", g, nil, func(*side) kmsg.Request { return build() })); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitSameState gives both sides time to end the rebalance of a group that nobody is left in: where ids are handed out
// that nobody has used yet a timer of no time ends it, and what comes before that timer is chance. Whether the states are
// the same in the end is for the queries to tell.
func (d *driver) awaitSameState(group string) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if d.sides[0].state(group) == d.sides[1].state(group) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// regexTime is how long Kafka may take to resolve a pattern in the background.
const regexTime = 40 * time.Millisecond

// awaitResolved gives both sides time to resolve the patterns of a group, which may change its epoch.
func (d *driver) awaitResolved(group string) {
	time.Sleep(regexTime)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if d.sides[0].epoch(group) == d.sides[1].epoch(group) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
