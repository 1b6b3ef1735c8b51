// Does with kafka-go what `tests/interop/gateway/clients.py` asks of each client.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

const retention = "retention.ms"

var plan struct {
	Address, User, Password, Topic string
	Mechanisms, Parts              []string
	Codecs                         map[string][]string
	Group                          [][]string
	WaitS                          int `json:"wait_s"`
}

var compressions = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func mechanism(name, password string) sasl.Mechanism {
	algorithm := scram.SHA512
	switch name {
	case "PLAIN":
		return plain.Mechanism{Username: plan.User, Password: password}
	case "SCRAM-SHA-256":
		algorithm = scram.SHA256
	}
	found, err := scram.Mechanism(algorithm, plan.User, password)
	check(err)
	return found
}

func known() sasl.Mechanism { return mechanism(plan.Mechanisms[0], plan.Password) }

func transport(found sasl.Mechanism) *kafka.Transport { return &kafka.Transport{SASL: found} }

func isKnown(found sasl.Mechanism) bool {
	client := kafka.Client{Addr: kafka.TCP(plan.Address), Transport: transport(found), Timeout: 5 * time.Second}
	_, err := client.ApiVersions(context.Background(), &kafka.ApiVersionsRequest{})
	return err == nil
}

func create(client *kafka.Client, topic string) {
	answer, err := client.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}},
	})
	check(err)
	check(answer.Errors[topic])
}

func produce(topic string, values []string, compression kafka.Compression) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(plan.Address), Topic: topic, Transport: transport(known()), Compression: compression,
		Balancer: &kafka.RoundRobin{}, BatchTimeout: 10 * time.Millisecond, RequiredAcks: kafka.RequireAll,
	}
	var messages []kafka.Message
	for _, value := range values {
		messages = append(messages, kafka.Message{Value: []byte(value)})
	}
	check(writer.WriteMessages(context.Background(), messages...))
	check(writer.Close())
}

// Reads so many records as a member of a group, and commits the offsets behind them.
func read(topic, group string, count int) []string {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{plan.Address}, Topic: topic, GroupID: group, StartOffset: kafka.FirstOffset,
		MaxWait: 200 * time.Millisecond, IsolationLevel: kafka.ReadCommitted,
		Dialer: &kafka.Dialer{SASLMechanism: known(), Timeout: 10 * time.Second},
	})
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(plan.WaitS)*time.Second)
	defer cancel()
	found := []string{}
	for len(found) < count {
		message, err := reader.ReadMessage(limit)
		if err != nil {
			fmt.Fprintln(os.Stderr, topic, err)
			break
		}
		found = append(found, string(message.Value))
	}
	check(reader.Close())
	sort.Strings(found)
	return found
}

func codecs(client *kafka.Client) any {
	found := map[string][]string{}
	for codec, values := range plan.Codecs {
		topic := plan.Topic + "-" + codec
		create(client, topic)
		produce(topic, values, compressions[codec])
		found[codec] = read(topic, topic, len(values))
	}
	return found
}

func group(client *kafka.Client) any {
	topic := plan.Topic + "-group"
	create(client, topic)
	found := [][]string{}
	for _, values := range plan.Group {
		produce(topic, values, 0)
		found = append(found, read(topic, topic, len(values)))
	}
	return found
}

func admin(client *kafka.Client) any {
	topic, background := plan.Topic+"-admin", context.Background()
	create(client, topic)
	changed, err := client.IncrementalAlterConfigs(background, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: retention, Value: "86400000"}},
		}},
	})
	check(err)
	check(changed.Resources[0].Error)
	described, err := client.DescribeConfigs(background, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{retention},
		}},
	})
	check(err)
	metadata, err := client.Metadata(background, &kafka.MetadataRequest{Topics: []string{topic}})
	check(err)
	deleted, err := client.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err)
	check(deleted.Errors[topic])
	// A transport answers from what it has cached: another one asks.
	other := kafka.Client{Addr: client.Addr, Transport: transport(known())}
	left, err := other.Metadata(background, &kafka.MetadataRequest{})
	check(err)
	isDeleted := true
	for _, each := range left.Topics {
		isDeleted = isDeleted && each.Name != topic
	}
	return map[string]any{
		"partitions": len(metadata.Topics[0].Partitions),
		retention:    described.Resources[0].ConfigEntries[0].ConfigValue,
		"is_deleted": isDeleted,
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/segmentio/kafka-go" {
			return module.Version
		}
	}
	return ""
}

func main() {
	check(json.Unmarshal([]byte(os.Args[1]), &plan))
	client := &kafka.Client{Addr: kafka.TCP(plan.Address), Transport: transport(known()), Timeout: 30 * time.Second}
	parts := map[string]func(*kafka.Client) any{"codecs": codecs, "group": group, "admin": admin}
	done := map[string]any{"version": version()}
	for _, name := range plan.Parts {
		done[name] = parts[name](client)
	}
	logins := []string{}
	for _, name := range plan.Mechanisms {
		if isKnown(mechanism(name, plan.Password)) {
			logins = append(logins, name)
		}
	}
	done["logins"], done["is_refused"] = logins, !isKnown(mechanism(plan.Mechanisms[0], "wrong"))
	check(json.NewEncoder(os.Stdout).Encode(done))
}
