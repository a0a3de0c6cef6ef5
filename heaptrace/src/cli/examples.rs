//! The examples in the help texts.
//!
//! Part of the command line. Must not know the options.

pub(super) const USAGE: &str = "heaptrace [OPTIONS] --pid <PID> | --all | -- <COMMAND> [ARGS]...\n       \
                     heaptrace record|report|leaks|timeline|map|diff|types|flamegraph|pprof|export|symbolize|who|doctor [OPTIONS]";

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo heaptrace --pid 1234                       watch a running process
  sudo heaptrace --all                            watch the whole machine
  sudo heaptrace --all --by process               memory of each program
  sudo heaptrace --all --comm 'php-fpm*'          watch every process with that name
  sudo heaptrace --pid 1234 --filter 'function=parse_*'
                                                  only what these functions allocate
  sudo heaptrace -- ./server --port 80            start a command, watch it from the start
  sudo heaptrace record -- ./server --port 80     record it to heaptrace.data, then show the data:
  heaptrace report                                  as text (--format json for programs)
  heaptrace flamegraph                              as an SVG
  heaptrace pprof                                   for `go tool pprof` and similar tools
  heaptrace timeline                                as a plot of memory over time
  heaptrace types                                   as a list of types
  heaptrace map                                     what resident memory is made of (record --blocks)
  heaptrace diff old.data heaptrace.data            what changed since another recording
  heaptrace export --format speedscope              for speedscope, Firefox profiler, heaptrack and more
  sudo heaptrace doctor                           check whether this machine can be traced

Keys in the live table: q quit, s sort, b group, p pause, ? help.
`heaptrace <SUBCOMMAND> --help` explains a subcommand.";

pub(super) const RECORD_EXAMPLES: &str = "\
Examples:
  sudo heaptrace record -- ls -l                  a command, from its first allocation to its end
  sudo heaptrace record --pid 12 --pid 34         running processes, until they end or Ctrl-C
  sudo heaptrace record --all --duration 30s      the whole machine, for half a minute
  sudo heaptrace record -o /tmp/ls.data -- ls     to another file
  sudo heaptrace record --as www-data -- ./server
                                                  as another user, with that user's rights
  sudo heaptrace record --all --interval 10s --rotate 1h,24
                                                  until Ctrl-C: a snapshot every 10 seconds, a file
                                                  every hour, and the files of the last day are kept

On SIGUSR1, heaptrace writes a snapshot at once. The file can be read while it is written.

heaptrace exits with the exit status of the command. Next: heaptrace report, flamegraph or pprof.";

pub(super) const REPORT_EXAMPLES: &str = "\
Examples:
  heaptrace report                                memory that was not freed, largest first
  heaptrace report --metric total-allocations     code that allocates most often
  heaptrace report --metric peak-bytes --top 5    memory that was live at the peak
  heaptrace report --by process                   memory of each program
  heaptrace report --by function --filter process=nginx
  heaptrace report --wrapper 'pool_*'             code that calls an allocator of your own
  heaptrace report --filter 'module=libssl*'      allocations through a library
  heaptrace report --filter 'process=nginx and not module=libssl*'
  heaptrace report --language python --by line    lines of Python that allocate
  heaptrace report --source                       memory beside each line of the source files
  heaptrace report --source='Cache::*'            only the lines of these functions (or files)
  heaptrace report --histogram                    sizes and lifetimes of each site's blocks
  heaptrace report --snapshots                    the moments that can be shown
  heaptrace report --from -5m                     what the last five minutes allocated and freed
  heaptrace report --at 2h heaptrace.data.3       an older file, two hours after the run began
  heaptrace report --format json | jq .totals     for programs

Exits with 1 if the file is damaged; the readable part is shown nevertheless. It is no error if the
file only ends early, because its writer was killed.";

pub(super) const LEAKS_EXAMPLES: &str = "\
Examples:
  sudo heaptrace record --pid 1234 --duration 2m  record a running process for a while, then:
  heaptrace leaks                                 which of its sites grow, and how fast
  heaptrace leaks --from 1m --to 10m              only in this time
  heaptrace leaks --suppressions known.txt        without known leaks (leak:NAME, as for LeakSanitizer)
  sudo heaptrace record --reachable --duration 1m -- ./server
                                                  look also for blocks that nothing points to
  heaptrace leaks --filter process=nginx --format json | jq '.growing[].bytes_per_second'

The recording may still be going on. A site grows if the least that it holds in each of up to 12 steps rises over them: the
probability that any site is shown by chance is below 1 % (Mann and Kendall's test, with Bonferroni's correction). In a
sample, growth must be more than three standard errors.";

pub(super) const TYPES_EXAMPLES: &str = "\
Examples:
  heaptrace types                                 which data structures hold memory
  heaptrace types --by element                    what they hold, in whichever container
  heaptrace types --sort total-bytes --top 20     which are allocated most
  heaptrace types --filter 'type=std::*'          only these
  heaptrace types --filter 'type=(unknown)'       what has no type, and where it is made
  heaptrace timeline --by type                    which grow
  heaptrace types --format json | jq '.types[0]'

Types are found in debug information, and in the names of functions of C++ and Rust, where and when names are looked up; a type that is
not certain is (unknown). The number of elements is given if the smallest and the largest block hold a whole number of them: it is the
bytes of all blocks without their headers, divided by the size of an element.";

pub(super) const TIMELINE_EXAMPLES: &str = "\
Examples:
  heaptrace timeline                              plot the live bytes of heaptrace.data, in all and of 8 stacks
  heaptrace timeline --by module                  of each file with code
  heaptrace timeline --from -5m                   the last five minutes of a recording, also while it goes on
  heaptrace timeline --format svg -o memory.svg   a picture
  heaptrace timeline --format csv -o memory.csv   a table for a spreadsheet

The numbers are known at the snapshots of the recording (record --interval). If the peak of the run was between two snapshots, it is
shown between them. Of more than 240 snapshots, neighbours become one. Memory that a process had not freed when it ended is not live.";

pub(super) const MAP_EXAMPLES: &str = "\
Examples:
  heaptrace record --blocks --pid 4242            record with single blocks, which a map needs
  heaptrace map                                   what the resident memory of heaptrace.data is made of, and which sites keep it
  heaptrace map --at 5m --pid 4242                as it was five minutes into the run, of one process
  heaptrace map -o map.svg                        a picture, in the order of addresses
  heaptrace map --format svg --color-by fullness  by how full pages are, to heaptrace.map.svg

Memory is read at the end of the recording from processes that still run, and every ten seconds or less often before. Processes are not
stopped meanwhile.";

pub(super) const FLAMEGRAPH_EXAMPLES: &str = "\
Examples:
  heaptrace flamegraph                            draw heaptrace.data to heaptrace.svg
  heaptrace flamegraph --metric total-bytes       all allocated memory, freed or not
  heaptrace flamegraph --by cgroup                control groups at the root
  heaptrace flamegraph --filter 'container=4d2f*' one container only
  heaptrace flamegraph old.data -o old.svg        another file

In a browser, the file has a switch between metrics, zoom (click a frame), and a search (/ or Ctrl-F) that
shows the sum of what it finds. Elsewhere it is a picture of the metric that is drawn first. If that metric
is zero because all was freed, the peak is drawn instead.";

pub(super) const PPROF_EXAMPLES: &str = "\
Examples:
  heaptrace pprof                                 convert heaptrace.data to heaptrace.pb.gz
  go tool pprof -http=: heaptrace.pb.gz           show it in a browser
  heaptrace pprof --filter unit=nginx.service     one service only
  go tool pprof -tags heaptrace.pb.gz             pid, process, cgroup, container and unit of each sample
  go tool pprof -sample_index=alloc_space -top heaptrace.pb.gz";

pub(super) const EXPORT_EXAMPLES: &str = "\
Examples:
  heaptrace export --format speedscope            write heaptrace.speedscope.json, for www.speedscope.app
  heaptrace export --format firefox               for profiler.firefox.com
  heaptrace export --format heaptrack             for heaptrack_gui and heaptrack_print
  heaptrace export --format heap-text && google-pprof --text ./server heaptrace.heap
  heaptrace export --format folded --metric peak-bytes -o - | flamegraph.pl > peak.svg
  heaptrace export --format csv --filter process=nginx -o nginx.csv.gz

heap-text and jeheap hold addresses, without names: their readers look the names up, and functions of Python, JavaScript and Java
are left out. In them and in heaptrack's file, what processes had not freed when they ended counts as not freed. heaptrack's file
holds one process and a line for each block; its sums are those of the recording, the order of its events is made up.";

pub(super) const DIFF_EXAMPLES: &str = "\
Examples:
  heaptrace diff old.data new.data                stacks whose memory changed, the largest change first
  heaptrace diff old.data new.data --by function --metric total-allocations
  heaptrace diff run.data run.data --old-at 1m --new-at 10m
                                                  two moments of one run
  heaptrace diff old.data new.data --format flamegraph
                                                  heaptrace.diff.svg: frames that grew are red, those that shrank are blue
  heaptrace diff old.data new.data --format json | jq .total

Two builds of a program can be compared: stacks are joined by the names of their functions. Of sampled runs, each change has a range
that holds the true one in 95 % of cases; a change whose range holds zero is called noise. Two moments of one run share their samples,
so there the ranges are wider than they need to be. To draw what is gone, swap OLD and NEW.";

pub(super) const SYMBOLIZE_EXAMPLES: &str = "\
Examples:
  heaptrace symbolize                             add names to heaptrace.data
  heaptrace symbolize --debug-dir ./symbols       with debug files of your own
  heaptrace symbolize prod.data -o named.data     leave the file as it is, write a copy

Names are found when a recording ends. Use this on a machine that has debug files which the traced machine lacked. Only
names change, never numbers. A name is kept unless more is known: a function where there was none, or its source lines.
A file of another build is never used. With the variable DEBUGINFOD_URLS, debug files that are not here are asked of its
servers by debuginfod-find, which must be installed.";

pub(super) const WHO_EXAMPLES: &str = "\
Examples:
  sudo heaptrace record --blocks --events -- ./server
                                                  record each block, then:
  heaptrace who 0x55d0c8a2b2d0                    the block that holds this address, by heaptrace.data
  heaptrace who --core core.1234                  the owners of the addresses in the registers of the thread that crashed
  heaptrace who --core core.1234 rdi 0x55d0c8a2b2d0
                                                  of this register, and of this address
  heaptrace who 0x55d0c8a2b2d0 --pid 1234 server.data
                                                  a recording of several processes, also while it goes on
  sudo heaptrace who 0x55d0c8a2b2d0 --pid 1234    without a recording: the next block at this address
  heaptrace who --gdb-commands > heaptrace.gdb.py
                                                  in gdb: source heaptrace.gdb.py, heaptrace who p->next

The block that was freed last before a program used it again is the one that a stale pointer was made for. An address just behind
the end of a block shows what overflows. Exits with 1 if the file is damaged.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  sudo heaptrace doctor                           check this machine
  sudo heaptrace doctor --pid 1234                check also the allocators of a process

Exits with 0 if tracing can work, with 1 otherwise. Run it with the same rights as a trace
(sudo heaptrace doctor).";
