package roundtrip

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// contents is all that must survive: topics with their ids, configs and offsets, digests of the records of both
// isolation levels, and the offsets of the groups.
func (w *traveler) contents() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	adm := kadm.NewClient(w.client())
	topics, err := adm.ListTopics(w.context())
	w.must("list topics", err)
	for name, d := range topics {
		w.must("topic "+name, d.Err)
		out["topic "+name] = fmt.Sprintf("id %s, %d partitions", d.ID, len(d.Partitions))
	}
	names := slices.Sorted(maps.Keys(topics))
	starts, err := adm.ListStartOffsets(w.context(), names...)
	w.must("list start offsets", err)
	ends, err := adm.ListEndOffsets(w.context(), names...)
	w.must("list end offsets", err)
	stable, err := adm.ListCommittedOffsets(w.context(), names...)
	w.must("list stable offsets", err)
	for name, d := range topics {
		for p := range d.Partitions {
			start, _ := starts.Lookup(name, p)
			end, _ := ends.Lookup(name, p)
			lso, _ := stable.Lookup(name, p)
			for _, o := range []kadm.ListedOffset{start, end, lso} {
				w.must("offsets of "+name, o.Err)
			}
			key := fmt.Sprintf("%s-%d", name, p)
			out["offsets of "+key] = fmt.Sprintf("start %d, end %d, stable %d", start.Offset, end.Offset, lso.Offset)
			out["uncommitted records of "+key] = w.digest(name, p, start.Offset, end.Offset, kgo.ReadUncommitted())
			out["committed records of "+key] = w.digest(name, p, start.Offset, lso.Offset, kgo.ReadCommitted())
		}
	}
	w.configs(adm, names, out)
	w.groups(adm, out)
	return out
}

// digest reads a partition and hashes its records. Of a compacted topic it is the last value of each key that counts.
func (w *traveler) digest(topic string, partition int32, start, end int64, level kgo.IsolationLevel) string {
	w.t.Helper()
	if start == end {
		return "none"
	}
	cl := w.client(kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {partition: kgo.NewOffset().At(start)},
	}))
	defer cl.Close()
	hash, count, latest := sha256.New(), 0, map[string]string{}
	for next := start; next < end; {
		fetches := cl.PollFetches(w.context())
		w.must("fetch of "+topic, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if r.Attrs.IsControl() || next > end {
				return
			}
			count++
			line := fmt.Sprintf("%d %d %t%q %t%q", r.Offset, r.Timestamp.UnixMilli(), r.Key == nil, r.Key, r.Value == nil, r.Value)
			for _, h := range r.Headers {
				line += fmt.Sprintf(" %q=%q", h.Key, h.Value)
			}
			latest[string(r.Key)] = line
			_, _ = fmt.Fprintln(hash, line) // a hash never fails
		})
	}
	if strings.HasPrefix(topic, "compacted") {
		hash.Reset()
		count = len(latest)
		for _, key := range slices.Sorted(maps.Keys(latest)) {
			_, _ = fmt.Fprintln(hash, latest[key])
		}
	}
	return fmt.Sprintf("%d records, %x", count, hash.Sum(nil)[:12])
}

// configs are those that were set.
func (w *traveler) configs(adm *kadm.Client, names []string, out map[string]string) {
	w.t.Helper()
	described, err := adm.DescribeTopicConfigs(w.context(), names...)
	w.must("describe configs", err)
	for _, r := range described {
		w.must("configs of "+r.Name, r.Err)
		var set []string
		for _, c := range r.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				set = append(set, c.Key+"="+c.MaybeValue())
			}
		}
		slices.Sort(set)
		out["configs of "+r.Name] = strings.Join(set, " ")
	}
}

func (w *traveler) groups(adm *kadm.Client, out map[string]string) {
	w.t.Helper()
	listed, err := adm.ListGroups(w.context())
	w.must("list groups", err)
	for name := range listed {
		offsets, err := adm.FetchOffsets(w.context(), name)
		w.must("offsets of group "+name, err)
		var lines []string
		offsets.Each(func(o kadm.OffsetResponse) {
			lines = append(lines, fmt.Sprintf("%s-%d %d %q", o.Topic, o.Partition, o.At, o.Metadata))
		})
		slices.Sort(lines)
		out["offsets of group "+name] = strings.Join(lines, ", ")
	}
}
