package redissim

import (
	"sort"
	"strings"
)

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// SlotOf returns the hash slot of a key: the slot of its hash tag, if it has one.
func SlotOf(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	return int(crc16(key)) % slots
}

// crc16 is the checksum that Redis Cluster uses: the polynomial is 0x1021, and the
// register begins with 0.
func crc16(text string) (sum uint16) {
	for i := range len(text) {
		sum ^= uint16(text[i]) << 8
		for range 8 {
			carry := sum&0x8000 != 0
			sum <<= 1
			if carry {
				sum ^= 0x1021
			}
		}
	}
	return sum
}

// ShardOf returns which of n shards holds a slot. Each has an equal share, as
// redis-cli lays it out.
func ShardOf(slot, shards int) int {
	return sort.Search(shards-1, func(i int) bool { return slot < slots*(i+1)/shards })
}
