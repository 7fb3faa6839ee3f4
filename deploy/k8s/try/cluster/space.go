//go:build linux

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A space is a set of Linux namespaces for network, mounts and processes. Its first process
// is this program, which does nothing in it except reap processes. When that process ends,
// the kernel ends all processes in the space, and removes its mounts, links and rules. The
// first process ends when its standard input does, so nothing outlives this program, even
// if this program is killed.
type space struct {
	dir    string
	init   *exec.Cmd
	input  io.Closer
	cgroup string // name of the cgroup of all pods, in each hierarchy
}

// inside names the environment variable with the folder of the space. Only the first
// process of a space has it.
const inside = "SHAVER_TRY_SPACE"

// Init must be the first call of main. In the first process of a space it does the work of
// that process and does not return. In any other process it does nothing.
func Init() {
	dir := os.Getenv(inside)
	if dir == "" || os.Getpid() != 1 {
		return
	}
	if err := furnish(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	fmt.Println("ready")
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for range child {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
}

// sysctls are the settings of the kernel that a kubelet writes. The space has files of its
// own in their place, so that the machine keeps its settings.
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// furnish mounts what differs in the space.
func furnish(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, name := range sysctls {
		file := filepath.Join(dir, "sysctl", filepath.Base(name))
		text, err := os.ReadFile("/proc/sys/" + name)
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err == nil {
			err = unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("replacing %s: %w", name, err)
		}
	}
	for _, target := range []string{"/run", "/var/lib", "/var/log", filepath.Join(dir, "etcd"), filepath.Join(dir, "volumes", "tiny")} {
		size := ""
		if filepath.Base(target) == "tiny" {
			size = "size=" + tiny
		}
		if err := unix.Mount("tmpfs", target, "tmpfs", 0, size); err != nil {
			return fmt.Errorf("mounting a tmpfs at %s: %w", target, err)
		}
	}
	return os.MkdirAll("/run/lock", 0o755)
}

// tiny is the size of the volume "tiny", which steps fill up.
const tiny = "2m"

// newSpace starts a space with the folder dir, which must not be below /run or /var.
func newSpace(dir string) (*space, error) {
	for _, sub := range []string{"sysctl", "etcd", "volumes/tiny", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	s := &space{dir: dir, init: exec.Command("/proc/self/exe"), cgroup: filepath.Base(dir)}
	s.init.Env = append(os.Environ(), inside+"="+dir)
	s.init.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	in, err1 := s.init.StdinPipe()
	out, err2 := s.init.StdoutPipe()
	s.init.Stderr = os.Stderr
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	s.input = in
	if err := s.init.Start(); err != nil {
		return nil, fmt.Errorf("making namespaces, which needs root: %w", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		s.close()
		return nil, fmt.Errorf("first process of the namespaces: %s (%v)", strings.TrimSpace(line), err)
	}
	if err := s.makeCgroups(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// under returns the start of a command line that runs a program in the space.
func (s *space) under() []string {
	return []string{"nsenter", "--target", strconv.Itoa(s.init.Process.Pid), "--net", "--mount", "--pid", "--"}
}

// network returns the start of a command line that runs a program in the network of the
// space, with the files of this machine.
func (s *space) network() []string {
	return []string{"nsenter", "--net=/proc/" + strconv.Itoa(s.init.Process.Pid) + "/ns/net", "--"}
}

// daemon starts a program in the space. Its output goes to a file in the folder log.
func (s *space) daemon(name string, args ...string) error {
	log, err := os.Create(filepath.Join(s.dir, "log", name))
	if err != nil {
		return err
	}
	defer log.Close()
	args = append(s.under(), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	go cmd.Wait()
	return nil
}

// hierarchies returns the folders in which cgroups are made: one with cgroup v2, several
// with v1.
func hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*")
	var list []string
	for _, d := range dirs {
		if info, err := os.Lstat(d); err == nil && info.IsDir() {
			list = append(list, d)
		}
	}
	return list
}

// makeCgroups makes the cgroup of all pods.
func (s *space) makeCgroups() error {
	for _, h := range hierarchies() {
		dir := filepath.Join(h, s.cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new cgroup of v1
			if text, err := os.ReadFile(filepath.Join(h, name)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// close ends all processes of the space, and removes its cgroups and its folder.
func (s *space) close() error {
	s.input.Close()
	s.init.Process.Kill()
	s.init.Wait()
	var err error
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err = os.RemoveAll(s.dir)
		for _, h := range hierarchies() {
			err = errors.Join(err, removeCgroups(filepath.Join(h, s.cgroup)))
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// prefix starts the names of the folder and the cgroups of a cluster. The id of its process
// follows.
const prefix = "shaver-cluster-"

// sweep removes what a process left that was killed. The kernel has ended everything else.
func sweep() {
	for _, h := range append(hierarchies(), os.TempDir()) {
		left, _ := filepath.Glob(filepath.Join(h, prefix+"*"))
		for _, dir := range left {
			if _, err := os.Stat("/proc/" + strings.TrimPrefix(filepath.Base(dir), prefix)); err == nil {
				continue
			}
			if h == os.TempDir() {
				os.RemoveAll(dir)
			} else {
				removeCgroups(dir)
			}
		}
	}
}

// removeCgroups removes a cgroup and those below it.
func removeCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeCgroups(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, unix.Rmdir(dir))
}
