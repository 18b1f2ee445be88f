package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// KafkaVersion is the Apache Kafka that Gregor is compared with.
const KafkaVersion = "4.4.0"

// libsVariable names a directory that holds Kafka's jars already; cacheVariable the one where they are put.
const (
	libsVariable  = "KAFKA_LIBS"
	cacheVariable = "GREGOR_COMPAT_CACHE"
)

// libs fetches Kafka's jars through Maven, once, to a cache directory outside the source tree.
var libs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(libsVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, unlock, err := cached("kafka-" + KafkaVersion)
	if err != nil {
		return "", err
	}
	defer unlock()
	jars := filepath.Join(dir, "libs")
	if _, err := os.Stat(filepath.Join(jars, "kafka_2.13-"+KafkaVersion+".jar")); err == nil {
		return jars, nil
	}
	pom, err := os.ReadFile(filepath.Join(moduleDir(), "java", "pom.xml"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), pom, 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command("mvn", "-q", "-B", "-Dkafka.version="+KafkaVersion, "dependency:copy-dependencies", "-DoutputDirectory="+jars)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn dependency:copy-dependencies: %w\n%s", err, out)
	}
	return jars, nil
})

// cached is a directory outside of the source tree for what is fetched; it is locked until unlock is called.
func cached(name string) (dir string, unlock func(), err error) {
	cache := os.Getenv(cacheVariable)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", nil, err
		}
		cache = filepath.Join(user, "gregor-compat")
	}
	dir = filepath.Join(cache, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	unlock, err = lockFile(filepath.Join(dir, ".lock"))
	return dir, unlock, err
}

// lockFile keeps several test processes from fetching at the same time.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// javaOptions keep a JVM small and quick to start; the tests measure no speed with them.
func javaOptions(logLevel string) []string {
	return []string{
		"-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + filepath.Join(moduleDir(), "java", "log4j2.yaml"), "-Dcompat.log.level=" + logLevel,
	}
}

// kafkaCommand is a broker of Apache Kafka.
func kafkaCommand(config string) (*exec.Cmd, error) {
	jars, err := libs()
	if err != nil {
		return nil, err
	}
	args := append(javaOptions("WARN"), "-Xmx768M", "-cp", filepath.Join(jars, "*"), "kafka.Kafka", config)
	return exec.Command("java", args...), nil
}
