// franz-go: idempotent producer (its default) with every codec, consumer by assignment, admin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	seeds          = strings.Split(os.Getenv("KUORUM_BOOTSTRAP"), ",")
	topic          = fmt.Sprintf("franz-go-%d", time.Now().UnixMilli())
	passed, failed int
	written        int64
)

const count = 500

func check(name string, story func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := story(ctx); err != nil {
		failed++
		fmt.Printf("  FAIL  %s: %v\n", name, err)
		return
	}
	passed++
	fmt.Printf("  ok    %s\n", name)
}

func client(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...)}, opts...)...)
	if err != nil {
		panic(err)
	}
	return c
}

func transfer(i int64) string { return fmt.Sprintf(`{"id":%d,"amount":%d}`, i, i*37%100000) }

func main() {
	rf := int16(3)
	if n, err := strconv.Atoi(os.Getenv("RF")); err == nil {
		rf = int16(n)
	}
	admin := kadm.NewClient(client())
	check("create a topic and see it", func(ctx context.Context) error {
		if _, err := admin.CreateTopic(ctx, 3, rf, nil, topic); err != nil {
			return err
		}
		for {
			topics, err := admin.ListTopics(ctx, topic)
			if err != nil {
				return err
			}
			if len(topics[topic].Partitions) == 3 {
				return nil
			}
		}
	})
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		check("produce idempotently with "+name, func(ctx context.Context) error {
			c := client(kgo.ProducerBatchCompression(codecs[name]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			defer c.Close()
			var records []*kgo.Record
			for i := written; i < written+count; i++ {
				records = append(records, &kgo.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: []byte(transfer(i))})
			}
			results := c.ProduceSync(ctx, records...)
			if err := results.FirstErr(); err != nil {
				return err
			}
			for i, r := range records {
				if r.Offset != written+int64(i) {
					return fmt.Errorf("record %d went to offset %d", written+int64(i), r.Offset)
				}
			}
			written += count
			return nil
		})
	}
	check("consume everything by assignment, in order and unharmed", func(ctx context.Context) error {
		c := client(kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
		defer c.Close()
		next := int64(0)
		for next < written {
			fetches := c.PollFetches(ctx)
			if errs := fetches.Errors(); len(errs) > 0 {
				return errs[0].Err
			}
			var wrong error
			fetches.EachRecord(func(r *kgo.Record) {
				if r.Offset != next || string(r.Value) != transfer(next) {
					wrong = fmt.Errorf("at %d: offset %d, value %s", next, r.Offset, r.Value)
				}
				next++
			})
			if wrong != nil {
				return wrong
			}
		}
		return nil
	})
	check("offsets and leader epochs", func(ctx context.Context) error {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		end, ok := ends.Lookup(topic, 0)
		if !ok || end.Err != nil || end.Offset != written || end.LeaderEpoch < 0 {
			return fmt.Errorf("end offset: %+v", end)
		}
		var ask kadm.OffsetForLeaderEpochRequest
		ask.Add(topic, 0, end.LeaderEpoch)
		epochs, err := admin.OffsetForLeaderEpoch(ctx, ask)
		if err != nil {
			return err
		}
		if at := epochs[topic][0]; at.Err != nil || at.EndOffset != written {
			return fmt.Errorf("end of epoch %d: %+v", end.LeaderEpoch, at)
		}
		return nil
	})
	check("configurations", func(ctx context.Context) error {
		value := "1234567"
		if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, topic); err != nil {
			return err
		}
		for {
			configs, err := admin.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				return err
			}
			for _, config := range configs[0].Configs {
				if config.Key == "retention.ms" && config.MaybeValue() == value {
					return nil
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	})
	check("the bad names are refused", func(ctx context.Context) error {
		_, err := admin.CreateTopic(ctx, 1, 1, nil, "no/slash")
		if !errors.Is(err, kerr.InvalidTopicException) {
			return fmt.Errorf("got %v", err)
		}
		_, err = admin.CreateTopic(ctx, 1, 99, nil, topic+"-99")
		if !errors.Is(err, kerr.InvalidReplicationFactor) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	check("delete the topic", func(ctx context.Context) error {
		_, err := admin.DeleteTopic(ctx, topic)
		return err
	})
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
