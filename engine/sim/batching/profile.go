package batching

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// BlockTokens is the size of a block of KV cache in tokens, as in vLLM.
const BlockTokens = 16

// GPUProfile is a model on GPUs: the constants of the step time. Sizes are in
// bytes, rates per second and per GPU.
type GPUProfile struct {
	Name string // such as "llama-3.1-8b/h100"

	ActiveParams  float64 // parameters that a token is multiplied with
	DenseParams   float64 // parameters read in every step
	ExpertParams  float64 // parameters of all experts; 0 for a dense model
	Experts       int     // experts of a layer
	ExpertsUsed   int     // experts that a token goes to
	BytesPerParam float64
	Layers        int
	Width         int     // numbers in the hidden state of a token
	HeadWidth     int     // numbers in all attention heads together
	KVBytes       float64 // bytes of KV cache for one token
	KVWindow      float64 // share of a context that attention reads: less than 1 if some layers read only a window
	MFU           float64 // share of FLOPS that matrix products reach
	Overhead      float64 // bytes of each GPU's memory besides weights and KV cache

	GPUs      int     // number of GPUs that share the model (tensor parallelism)
	FLOPS     float64 // peak bf16 operations per second
	Bandwidth float64 // bytes per second of memory
	Memory    float64
	Link      float64 // bytes per second between GPUs

	StepOverhead     time.Duration // added to every step
	SequenceOverhead time.Duration // added for each decoding sequence in a step
	LinkLatency      time.Duration // added for each exchange between GPUs
	FrontEnd         time.Duration // time of a request in the front end, which handles one request at a time, in parallel to the steps

	MaxBatchedTokens int // largest number of tokens in one step
}

// Shares of a GPU's peaks that real kernels reach, the same for all profiles.
const (
	weightEfficiency    = 0.85 // of Bandwidth, reading weights
	kvEfficiency        = 0.8  // of Bandwidth, reading the KV cache
	attentionEfficiency = 0.5  // of FLOPS
	memoryShare         = 0.9  // of Memory given to the engine (gpu_memory_utilization)
	activationBytes     = 2
)

const gib = 1 << 30

// gpus lists the GPUs of the profiles: memory bandwidth in bytes per second, memory in
// bytes.
var gpus = []struct {
	name              string
	bandwidth, memory float64
}{
	{"h100", 3.35e12, 80 * gib},
	{"h200", 4.8e12, 141e9},
}

// models lists the models of the profiles, with the fields that do not depend on the
// GPU.
var models = []GPUProfile{
	{
		Name: "llama-3.1-8b", ActiveParams: 8.03e9, DenseParams: 8.03e9, BytesPerParam: 2,
		Layers: 32, Width: 4096, HeadWidth: 4096, KVBytes: 131072, KVWindow: 1, MFU: 0.55, Overhead: 5.5 * gib,
		GPUs: 1, StepOverhead: 1500 * time.Microsecond, MaxBatchedTokens: 8192,
	},
	{
		Name: "gpt-oss-20b", ActiveParams: 3.6e9, DenseParams: 1.8e9, ExpertParams: 19.1e9, Experts: 32, ExpertsUsed: 4, BytesPerParam: 0.62,
		Layers: 24, Width: 2880, HeadWidth: 4096, KVBytes: 49152, KVWindow: 0.5, MFU: 0.26, Overhead: 8 * gib,
		GPUs: 1, StepOverhead: 1500 * time.Microsecond, MaxBatchedTokens: 8192,
	},
	{
		Name: "qwen3-235b", ActiveParams: 22e9, DenseParams: 8e9, ExpertParams: 227e9, Experts: 128, ExpertsUsed: 8, BytesPerParam: 1,
		Layers: 94, Width: 4096, HeadWidth: 8192, KVBytes: 192512, KVWindow: 1, MFU: 0.30, Overhead: 6 * gib,
		GPUs: 4, StepOverhead: 2 * time.Millisecond, MaxBatchedTokens: 16384,
	},
}

// Profiles returns all profiles: each model on each GPU.
func Profiles() []GPUProfile {
	var all []GPUProfile
	for _, p := range models {
		for _, gpu := range gpus {
			q := p
			q.Name += "/" + gpu.name
			q.FLOPS, q.Bandwidth, q.Memory, q.Link = 989.5e12, gpu.bandwidth, gpu.memory, 450e9
			q.SequenceOverhead, q.LinkLatency, q.FrontEnd = 12*time.Microsecond, 12*time.Microsecond, 3*time.Millisecond
			all = append(all, q)
		}
	}
	return all
}

// FindProfile returns the profile with this name. The error lists all names.
func FindProfile(name string) (GPUProfile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return GPUProfile{}, fmt.Errorf("no GPU profile is called %q: choose one of %s", name, strings.Join(names, ", "))
}

// Faster returns the profile of an engine that is factor times as fast and has
// the same memory. It is for tests and measurements for which p is too slow.
func (p GPUProfile) Faster(factor float64) GPUProfile {
	p.FLOPS *= factor
	p.Bandwidth *= factor
	p.Link *= factor
	for _, d := range []*time.Duration{&p.StepOverhead, &p.SequenceOverhead, &p.LinkLatency, &p.FrontEnd} {
		*d = time.Duration(float64(*d) / factor)
	}
	return p
}

// KVBlocks returns the size of the KV cache in blocks. The cache gets the memory that
// weights and overhead leave free.
func (p GPUProfile) KVBlocks() int {
	weights := (p.DenseParams + p.ExpertParams) * p.BytesPerParam
	free := float64(p.GPUs)*(memoryShare*p.Memory-p.Overhead) - weights
	return int(max(free, 0)/p.KVBytes) / BlockTokens
}

// Validate returns an error that names the first invalid constant.
func (p GPUProfile) Validate() error {
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"ActiveParams", p.ActiveParams},
		{"DenseParams", p.DenseParams},
		{"BytesPerParam", p.BytesPerParam},
		{"Layers", float64(p.Layers)},
		{"Width", float64(p.Width)},
		{"HeadWidth", float64(p.HeadWidth)},
		{"KVBytes", p.KVBytes},
		{"KVWindow", p.KVWindow},
		{"MFU", p.MFU},
		{"GPUs", float64(p.GPUs)},
		{"FLOPS", p.FLOPS},
		{"Bandwidth", p.Bandwidth},
		{"Memory", p.Memory},
		{"MaxBatchedTokens", float64(p.MaxBatchedTokens)},
	} {
		if !(c.value > 0 && !math.IsInf(c.value, 0)) {
			return fmt.Errorf("%s is %v: it must be above 0", c.name, c.value)
		}
	}
	switch {
	case p.ExpertParams > 0 && !(p.ExpertsUsed > 0 && p.ExpertsUsed <= p.Experts):
		return fmt.Errorf("ExpertsUsed is %d of %d Experts: a token goes to at least 1 and at most all", p.ExpertsUsed, p.Experts)
	case p.GPUs > 1 && !(p.Link > 0):
		return fmt.Errorf("Link is %v: several GPUs need a bandwidth between them", p.Link)
	case p.StepOverhead < 0 || p.SequenceOverhead < 0 || p.LinkLatency < 0 || p.FrontEnd < 0:
		return errors.New("StepOverhead, SequenceOverhead, LinkLatency and FrontEnd cannot be negative")
	case p.KVBlocks() < 1:
		return fmt.Errorf("Memory of %.0f GB does not hold the weights and one block of KV cache", p.Memory/1e9)
	}
	return nil
}

// StepWork is the work of one step.
type StepWork struct {
	Decoding int // sequences that get one token
	Prefill  int // prompt tokens

	// Attention is the work of attention over the prompts: the sum of c·(d + c/2)
	// over all chunks, for a chunk of c tokens that follows d computed tokens.
	Attention float64

	// Context is the sum of the lengths of all contexts read, in tokens.
	Context int64
}

// StepTime returns how long the step takes, without jitter.
func (p GPUProfile) StepTime(b StepWork) time.Duration {
	c := p.newStepTimeModel()
	return durationFromSeconds(c.stepSeconds(b))
}

func durationFromSeconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// stepTimeModel is the step time of a profile as coefficients, in seconds:
//
//	T   = c0 + c1·B + max( 2·P_act·n/(MFU·F·tp), W(n)/(0.85·BW·tp) )
//	      + 4·L·h·A/(0.5·F·tp) + kv·S·f/(0.8·BW·tp) + T_tp
//	W   = dense + experts·(1 - (1-k/N)^n)         bytes of weights read
//	T_tp = 2·L·( 2·(tp-1)/tp·n·d·2/link + latency )   for tp > 1
//
// with n = B + prompt tokens in the step, B decoding sequences, A Attention
// and S Context.
type stepTimeModel struct {
	fixed      float64 // c0, and the latency of T_tp
	decoding   float64 // per decoding sequence
	compute    float64 // per token
	dense      float64 // reading the dense weights
	experts    float64 // reading all experts
	missChance float64 // chance that a token does not go to a given expert
	attention  float64 // per unit of A
	context    float64 // per token of S
	exchangeTP float64 // per token
}

func (p *GPUProfile) newStepTimeModel() stepTimeModel {
	tp := float64(p.GPUs)
	weights := p.BytesPerParam / (weightEfficiency * p.Bandwidth * tp)
	c := stepTimeModel{
		fixed:     p.StepOverhead.Seconds(),
		decoding:  p.SequenceOverhead.Seconds(),
		compute:   2 * p.ActiveParams / (p.MFU * p.FLOPS * tp),
		dense:     p.DenseParams * weights,
		experts:   p.ExpertParams * weights,
		attention: 4 * float64(p.Layers) * float64(p.HeadWidth) / (attentionEfficiency * p.FLOPS * tp),
		context:   p.KVBytes * p.KVWindow / (kvEfficiency * p.Bandwidth * tp),
	}
	if p.ExpertParams > 0 {
		c.missChance = 1 - float64(p.ExpertsUsed)/float64(p.Experts)
	}
	if p.GPUs > 1 {
		exchanges := 2 * float64(p.Layers)
		c.fixed += exchanges * p.LinkLatency.Seconds()
		c.exchangeTP = exchanges * 2 * (tp - 1) / tp * float64(p.Width) * activationBytes / p.Link
	}
	return c
}

// stepSeconds returns the time of a step in seconds.
func (c *stepTimeModel) stepSeconds(b StepWork) float64 {
	n := float64(b.Decoding + b.Prefill)
	weights := c.dense
	if c.experts > 0 {
		weights += c.experts * (1 - math.Pow(c.missChance, n))
	}
	return c.fixed + c.decoding*float64(b.Decoding) + max(c.compute*n, weights) +
		c.attention*b.Attention + c.context*float64(b.Context) + c.exchangeTP*n
}
