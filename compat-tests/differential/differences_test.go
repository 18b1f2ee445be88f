package differential

import "slices"

// differing are the fields whose values two clusters never share.
var differing = []string{
	// Free space of the disk, read at two moments.
	"DescribeLogDirs.Dirs[].TotalBytes", "DescribeLogDirs.Dirs[].UsableBytes",
	// How far the metadata log has come: heartbeats and snapshots of the one are not those of the other.
	"ApiVersions.FinalizedFeaturesEpoch",
	"DescribeQuorum.Topics[].Partitions[].HighWatermark", "DescribeQuorum.Topics[].Partitions[].LeaderEpoch",
	"DescribeQuorum.Topics[].Partitions[].CurrentVoters[].LogEndOffset", "DescribeQuorum.Topics[].Partitions[].CurrentVoters[].LastFetchTimestamp",
	"DescribeQuorum.Topics[].Partitions[].CurrentVoters[].LastCaughtUpTimestamp",
	"DescribeQuorum.Topics[].Partitions[].Observers[].LogEndOffset",
	// Gregor documents its configs in words of its own.
	"DescribeConfigs.Resources[].Configs[].Documentation",
}

// named are places where Gregor names a fault that Kafka runs into: there the answer is UNKNOWN_SERVER_ERROR without a
// message (records that cannot be decompressed, codecs and operations that nobody knows).
var named = []string{"Produce.Topics[].Partitions[]", "IncrementalAlterConfigs.Resources[]"}

// namesWhatKafkaDoesNot tells whether two answers differ in nothing but that.
func namesWhatKafkaDoesNot(path string, gregor, kafka []field) bool {
	if !slices.Contains(named, path) {
		return false
	}
	code := func(fields []field) any {
		for _, f := range fields {
			if f.name == "ErrorCode" {
				return f.value
			}
		}
		return nil
	}
	return code(kafka) == "-1" && code(gregor) != "-1" && code(gregor) != "0"
}

// unordered are arrays that come in the order of a hash map.
var unordered = []string{
	"Metadata.Topics", "CreateTopics.Topics", "DeleteTopics.Topics", "CreatePartitions.Topics", "DescribeConfigs.Resources[].Configs", "DescribeConfigs.Resources",
	"AlterConfigs.Resources", "IncrementalAlterConfigs.Resources", "DeleteRecords.Topics", "DeleteRecords.Topics[].Partitions", "DescribeLogDirs.Dirs[].Topics",
	"DescribeLogDirs.Dirs[].Topics[].Partitions", "ListOffsets.Topics", "ListOffsets.Topics[].Partitions", "Produce.Topics", "Produce.Topics[].Partitions",
	"ListConfigResources.ConfigResources", "ApiVersions.SupportedFeatures", "ApiVersions.FinalizedFeatures", "OffsetFetch.Topics", "OffsetFetch.Groups[].Topics",
	"OffsetForLeaderEpoch.Topics", "OffsetForLeaderEpoch.Topics[].Partitions", "Fetch.Topics", "UpdateFeatures.Results", "OffsetFetch.Topics[].Partitions", "OffsetFetch.Groups[].Topics[].Partitions",
	"ElectLeaders.Topics", "DescribeGroups.Groups", "OffsetDelete.Topics", "OffsetDelete.Topics[].Partitions", "Fetch.Topics[].Partitions", "DeleteGroups.Groups", "AlterPartitionReassignments.Topics", "DescribeProducers.Topics",
}

// regrouped are arrays of topics in which the broker may name one topic several times.
var regrouped = []string{"Fetch.Topics"}

func mayDiffer(path string) bool { return slices.Contains(differing, path) }

func anyOrder(path string) bool { return slices.Contains(unordered, path) }
