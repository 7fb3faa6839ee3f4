// Package nightly decides what happens in a night: which model and which days are new, what
// to compute again after an interruption, which night is published, and which folders are
// deleted. It does not know how a step computes its result.
//
// The folder for the results has these files:
//
//	nights/NIGHT/   the files of a night, and night.json
//	current         symbolic link to the folder of the published night
//	current.json    the same for systems without such links
//	history.jsonl   one line for each night
//	history.html    a page about the nights
//
// Files and folders appear whole. A process that is killed at any moment and started again
// ends with the same results, because a step runs again unless night.json says that it
// finished with the files that are there.
package nightly

import "context"

// The names of the files in the folder of a night.
const (
	RecordFile = "night.json"
	ScoresFile = "scores.arrow"
	PrunedFile = "pruned.safetensors"
	PruneFile  = "prune.json"
	// ONNXFile and ONNXDataFile are only there with Config.ONNX, and the second one only if
	// the first has external data.
	ONNXFile     = "pruned.onnx"
	ONNXDataFile = "pruned.onnx.data"
	CheckFile    = "check.json"
	ReportFile   = "report.html"
	SweepFile    = "sweep.json" // if the night found its budget, or failed
	// DeltaFolder has DeltaFiles, and is only there with Config.Delta.
	DeltaFolder = "delta"
)

// DeltaFiles are the files that tell an embedding store what to change, relative to the folder of a night.
var DeltaFiles = []string{
	DeltaFolder + "/kept.parquet", DeltaFolder + "/dropped.parquet", DeltaFolder + "/baseline.parquet", DeltaFolder + "/head.safetensors", DeltaFolder + "/delta.json",
}

// Night is what a step works on.
type Night struct {
	Config *Config
	Name   string
	Folder string   // path of the night's folder
	Model  string   // path of the night's copy of the checkpoint
	Days   []string // paths of the datasets, oldest first
	// Previous is the path of the pruned model of the night that was published last; "" = none.
	Previous string
	// Number is the number of the night, and PreviousNumber that of the night that was published last;
	// 0 = none. They are the generations of the delta.
	Number, PreviousNumber int
	// PreviousModel is the path of the copy of the checkpoint of the night that was published last; "" = it is
	// gone, or the settings were others.
	PreviousModel string
	// PreviousChosen is how that night decided; nil = it was scored without a decision.
	PreviousChosen *Chosen
	// Kept says that Choose kept the choice of entries of Previous.
	Kept bool
}

// Steps computes what nights consist of. Run calls one function at a time. A function that
// is interrupted is called again with the same night, and then gives the same files. It writes
// them with package atomicfile.
type Steps interface {
	// Model returns the digest of the model in a checkpoint.
	Model(path string) (string, error)
	// ModelFiles returns the paths of the files of a checkpoint. Some may not exist.
	ModelFiles(path string) []string
	// Import imports the days that Config.Source has and Config.Days lacks, or has in another state. date is the day to wait for, or
	// "". It is called only with Config.Source, before anything else.
	Import(ctx context.Context, date string) error
	// Day returns the digest of the dataset in a folder. It is bad input if there is no dataset.
	Day(path string) (string, error)

	// Choose decides whether the choice of entries of Previous, which is not empty, is good enough for the
	// model. It is called only with Config.Reuse, and writes no file. The night is scored unless Kept.
	Choose(ctx context.Context, n *Night) (*Chosen, error)
	// Score writes ScoresFile.
	Score(ctx context.Context, n *Night) (*Scored, error)
	// Prune writes PrunedFile and PruneFile, without ScoresFile if n.Kept, and with Config.ONNX also ONNXFile and, if that has
	// external data, ONNXDataFile. With Config.Delta it also writes DeltaFiles.
	Prune(ctx context.Context, n *Night) (*Pruned, error)
	// Check writes CheckFile.
	Check(ctx context.Context, n *Night) (*Checked, error)
	// Report writes ReportFile.
	Report(ctx context.Context, n *Night) error

	// History returns a page about nights, oldest first. folders has the names of those
	// nights whose folders are still there.
	History(lines []Line, folders map[string]bool) ([]byte, error)
}

// Chosen says whether a night keeps the choice of entries of the published night, and why.
type Chosen struct {
	Kept bool   `json:"kept"`
	Why  string `json:"why"` // one or two sentences
	// Rise is by how much more the loss rises by pruning than it rose in the night that was scored last, with
	// its 95% interval. Null = it was not measured. It adds up over the nights that keep a choice.
	Rise *Change `json:"rise"`
	SE   float64 `json:"se"` // standard error of Rise
	// Nights is the number of nights in a row that kept the choice, with this one.
	Nights int `json:"nights"`
	// Scores is the digest of the scores that the choice comes from.
	Scores string `json:"scores,omitempty"`
}

// Scored describes the scores of a night.
type Scored struct {
	Generation int   `json:"generation"` // number of paired jobs since the last full one; 0 = full
	Rows       int64 `json:"rows"`       // rows that the scores stand for
	// Evaluations is the number of row evaluations: a row on which two models are computed
	// counts twice. A full job has FullEvaluations.
	Evaluations     int64    `json:"evaluations"`
	FullEvaluations int64    `json:"full_evaluations"`
	RelativeError   *float64 `json:"relative_error"` // against a full job, relative to the values; null = unknown
	Reduction       *float64 `json:"reduction"`      // of the variance, by pairing; null unless rows were paired
	Note            string   `json:"note,omitempty"` // what the reader should know, such as a rule that was not met
	// Noise says, as a clause, that few rows made the order of the entries. It is a reason if the check fails.
	Noise string `json:"noise,omitempty"`
	// CoreSeconds is the processor time of this process and of workers elsewhere; 0 = only
	// this process worked.
	CoreSeconds float64 `json:"core_seconds,omitempty"`
}

// Pruned describes the pruned model of a night.
type Pruned struct {
	Sparsity   float64 `json:"sparsity"` // portion of the entries that are dropped
	Bytes      int64   `json:"bytes"`
	DenseBytes int64   `json:"dense_bytes"` // size of the unpruned model as safetensors
	// Churn is the churn since the published night (see mask.Churn.Portion). PlainChurn is
	// the same without hysteresis. Both are null without a published night.
	Churn      *float64 `json:"churn"`
	PlainChurn *float64 `json:"plain_churn"`
	Tables     []Table  `json:"tables,omitempty"` // nil in records of older programs
}

// Table says what a table of the pruned model keeps. A model whose fields are rows of one table has one for each field.
type Table struct {
	Name    string `json:"name"`
	Rows    int    `json:"rows"`
	Entries int    `json:"entries"`
	Kept    int    `json:"kept"`  // entries
	Bytes   int64  `json:"bytes"` // of the kept entries and their positions in the file
}

// Rows are the splits of which a night used the rows, each for one purpose.
type Rows struct {
	Scored []string `json:"scored"`
	Chose  string   `json:"chose,omitempty"` // split that calibrated, or chose by the loss
	Judged string   `json:"judged"`
}

// Checked describes the comparison of the pruned model with the whole one.
type Checked struct {
	Rows          *Rows    `json:"rows,omitempty"` // nil in records of older programs
	Passed        bool     `json:"passed"`
	Reasons       []string `json:"reasons"`          // why the pruned model failed; empty if it passed
	Answer        []string `json:"answer,omitempty"` // the lines of sweep.Answer: of the pruned table, or if it failed of all tables of its scores; nil in records of older programs
	AUC           *float64 `json:"auc"`              // null if all labels are the same, or if they are numbers
	PrunedAUC     *float64 `json:"pruned_auc"`
	AUCDrop       *Change  `json:"auc_drop"`           // AUC - PrunedAUC
	LogLoss       *float64 `json:"log_loss,omitempty"` // nil if labels are numbers
	PrunedLogLoss *float64 `json:"pruned_log_loss,omitempty"`
	LogLossRise   *Change  `json:"log_loss_rise"`  // PrunedLogLoss - LogLoss
	RMSE          *float64 `json:"rmse,omitempty"` // nil unless labels are numbers
	PrunedRMSE    *float64 `json:"pruned_rmse,omitempty"`
	RMSERise      *Change  `json:"rmse_rise,omitempty"` // PrunedRMSE - RMSE
}

// Change is a difference with its 95% interval.
type Change struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low"` // null = unknown
	High  *float64 `json:"high"`
	Bound *float64 `json:"bound,omitempty"` // largest Value that the check allows; nil in records of older programs
}
