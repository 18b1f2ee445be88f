package harness

// KafkaLibs is the directory of Kafka's jars, fetched on first use: for programs outside of tests.
func KafkaLibs() (string, error) { return libs() }
