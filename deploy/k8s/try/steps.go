//go:build linux

package main

// groups are the steps in their order. The steps of a group run at the same time.
var groups = [][]step{
	{{"node", (*suite).join, true}},
	{{"images", (*suite).images, true}},
	{{"namespace", (*suite).namespace, true}},
	{{"data", (*suite).prepare, true}, {"validate", (*suite).validate, false}},
	{{"install", (*suite).install, true}},
	{{"idle", (*suite).idle, false}, {"load", (*suite).load, true}},
	{{"job", (*suite).oneJob, false}},
	{{"bad-input", (*suite).badInput, false}, {"late", (*suite).late, false}, {"quarantine", (*suite).quarantined, false}, {"full", (*suite).full, false}},
	{{"rivals", (*suite).rivals, false}, {"kernel", (*suite).kernel, false}, {"policies", (*suite).policies, false}},
	{{"cancel", (*suite).cancel, false}},
	{{"path", (*suite).path, false}},
	{{"ranges", (*suite).ranges, false}},
	{{"kill", (*suite).killAll, false}},
	{{"evict", (*suite).evictions, false}},
	{{"memory", (*suite).memory, false}},
	{{"no-servers", (*suite).noServers, false}},
	{{"scale", (*suite).scale, false}},
	{{"builds", (*suite).builds, false}},
	{{"nights", (*suite).nights, false}},
	{{"worker-job", (*suite).workerJob, false}},
	{{"queue", (*suite).queue, false}},
	{{"leftovers", (*suite).leftovers, false}},
}
