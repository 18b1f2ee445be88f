import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.ResolvedRegularExpression;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Answers what Kafka's server-side assignors assign. Questions and answers are those of Gregor's package assignortest:
 * lines on standard input and output, each question up to a line "end".
 *
 * <p>The group goes through Kafka's own classes: members and target assignments are made like those that are read from
 * records, the group says whether it is homogeneous, and the answer is what Kafka would write into records.
 */
public final class Assignors {
    record Topic(String name, Uuid id, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
        @Override
        public List<String> partitionRacks(int partition) {
            return List.of();
        }
    }

    /** The topics of a question. */
    record Image(Map<String, Topic> byName, Map<Uuid, Topic> byId) implements CoordinatorMetadataImage {
        @Override
        public Set<Uuid> topicIds() {
            return byId.keySet();
        }

        @Override
        public Set<String> topicNames() {
            return byName.keySet();
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(String name) {
            return Optional.ofNullable(byName.get(name));
        }

        @Override
        public Optional<TopicMetadata> topicMetadata(Uuid id) {
            return Optional.ofNullable(byId.get(id));
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            throw new UnsupportedOperationException();
        }

        @Override
        public long version() {
            return 1;
        }

        @Override
        public boolean isEmpty() {
            return byName.isEmpty();
        }
    }

    private static List<String> names(String text) {
        return text.equals("-") ? List.of() : List.of(text.split(","));
    }

    private static ConsumerGroupTargetAssignmentMemberValue target(String[] fields) {
        List<ConsumerGroupTargetAssignmentMemberValue.TopicPartition> topics = new ArrayList<>();
        for (int i = 2; i < fields.length; i++) {
            String[] parts = fields[i].split(":");
            List<Integer> partitions = new ArrayList<>();
            for (String p : parts[1].split(",")) partitions.add(Integer.parseInt(p));
            topics.add(new ConsumerGroupTargetAssignmentMemberValue.TopicPartition()
                .setTopicId(Uuid.fromString(parts[0])).setPartitions(partitions));
        }
        return new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(topics);
    }

    private static String show(ConsumerGroupTargetAssignmentMemberValue value) {
        return value.topicPartitions().stream().map(t -> " " + t.topicId() + ":"
            + t.partitions().stream().map(String::valueOf).collect(Collectors.joining(","))).collect(Collectors.joining());
    }

    /** One question as far as it was read. */
    private static final class Question {
        final ConsumerGroupPartitionAssignor assignor;
        final ConsumerGroup group = new ConsumerGroup(new LogContext(), new SnapshotRegistry(new LogContext()), "group");
        final Image image = new Image(new HashMap<>(), new HashMap<>());
        /** Members in the order of the question, and their targets as they are in records. */
        final Map<String, ConsumerGroupMember> members = new LinkedHashMap<>();
        final Map<String, ConsumerGroupTargetAssignmentMemberValue> targets = new HashMap<>();

        Question(String name) {
            assignor = name.equals("range") ? new RangeAssignor() : new UniformAssignor();
        }

        void line(String[] f) {
            switch (f[0]) {
                case "topic" -> {
                    Topic t = new Topic(f[1], Uuid.fromString(f[2]), Integer.parseInt(f[3]));
                    image.byName.put(t.name, t);
                    image.byId.put(t.id, t);
                }
                case "pattern" -> group.updateResolvedRegularExpression(f[1],
                    new ResolvedRegularExpression(new java.util.HashSet<>(names(f[2])), 1, 1));
                case "member" -> {
                    ConsumerGroupMember m = new ConsumerGroupMember.Builder(f[1]).setInstanceId(f[2].equals("-") ? null : f[2])
                        .setSubscribedTopicNames(names(f[3])).setSubscribedTopicRegex(f[4].equals("-") ? "" : f[4]).build();
                    group.updateMember(m);
                    members.put(f[1], m);
                }
                case "current" -> {
                    targets.put(f[1], target(f));
                    group.updateTargetAssignment(f[1], Assignment.fromRecord(target(f)));
                }
                default -> throw new IllegalArgumentException(String.join(" ", f));
            }
        }

        String answer() {
            TargetAssignmentBuilder.TargetAssignmentResult result =
                new TargetAssignmentBuilder.ConsumerTargetAssignmentBuilder("group", 2, assignor)
                    .withTime(Time.SYSTEM).withMembers(members).withSubscriptionType(group.subscriptionType())
                    .withTargetAssignment(group.targetAssignment()).withInvertedTargetAssignment(group.invertedTargetAssignment())
                    .withMetadataImage(image).withResolvedRegularExpressions(group.resolvedRegularExpressions()).build();
            Map<String, ConsumerGroupTargetAssignmentMemberValue> changed = new HashMap<>();
            for (CoordinatorRecord r : result.records()) {
                if (r.key() instanceof ConsumerGroupTargetAssignmentMemberKey key) {
                    changed.put(key.memberId(), (ConsumerGroupTargetAssignmentMemberValue) r.value().message());
                }
            }
            StringBuilder out = new StringBuilder();
            for (String id : members.keySet()) {
                ConsumerGroupTargetAssignmentMemberValue now = changed.get(id);
                ConsumerGroupTargetAssignmentMemberValue before = targets.get(id);
                // Kafka writes a record for a member that had none, even when it gets nothing.
                boolean same = now == null || (before == null && now.topicPartitions().isEmpty());
                if (now == null) now = before;
                out.append(id).append(same ? " same" : " new").append(show(now)).append('\n');
            }
            return out.append("end").toString();
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Question q = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            if (f[0].equals("assign")) {
                q = new Question(f[1]);
            } else if (f[0].equals("end")) {
                out.println(q.answer());
                out.flush();
            } else {
                q.line(f);
            }
        }
    }
}
