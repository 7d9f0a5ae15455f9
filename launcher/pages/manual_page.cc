#include <string_view>

#include <fmt/format.h>

#include "launcher/options/command_line.h"
#include "launcher/options/help.h"
#include "launcher/options/option_table.h"
#include "launcher/pages/pages.h"

namespace poprun::launcher {
namespace {

/// Escapes `text` so that groff prints it unchanged. Otherwise, groff would turn `-` into a typographic hyphen, and
/// would treat a `.` or `'` at the beginning of a line as a request.
std::string escaped(std::string_view text) {
  std::string result = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-' || c == '\'') {
      result += c == '-' ? "\\-" : "\\(aq";
    } else {
      result += c;
    }
  }
  return result;
}

std::string bold(std::string_view text) {
  return fmt::format("\\fB{}\\fR", escaped(text));
}

std::string entry(const std::string& term, std::string_view meaning) {
  return fmt::format(".TP\n{}\n{}.\n", term, escaped(meaning));
}

std::string entry_of(const OptionRow& row) {
  std::string term = row.letter == 0 ? "" : bold(fmt::format("-{}", row.letter)) + ", ";
  term += bold("--" + row.name);
  if (!row.placeholder.empty()) {
    const bool optional = row.arity == Arity::kFlag;
    term += fmt::format("{}\\fI{}\\fR{}", optional ? " [" : " ", escaped(row.placeholder), optional ? "]" : "");
  }
  return entry(term, described(row));
}

constexpr const char* kBeforeOptions = R"(.SH NAME
poprun\-emu \- train a model on emulated IPUs
.SH SYNOPSIS
.B poprun\-emu
.RI [ subcommand ]
.RI [ options ]
.I train.cfg
.SH DESCRIPTION
.B poprun\-emu
runs a training job on machines without IPUs, as Graphcore's
.B poprun
would run it on a Pod.
By default, it starts one process per replica through
.BR mpirun (1).
Each process computes the actual numbers on the CPU, keeps every tensor at its planned address in an
emulated In\-Processor Memory, and reports how long each step would take on the chip.
.PP
.I train.cfg
describes the job: a line
.B [training]
begins a section, and
.B seed = 7
below it sets a key.
On the command line the same key is
.BR "\-\-training.seed 7" ,
which overrides the file.
)";

constexpr const char* kAfterOptions = R"(.SH ENVIRONMENT
Every option can also be set by a variable whose name is
.B POPRUN_EMU_
followed by the name of the option in upper case, with
.B _
for
.B \-
and
.BR . :
.B POPRUN_EMU_OUTPUT_DIR
sets
.BR \-\-output\-dir ,
and
.B POPRUN_EMU_TRAINING_STEPS
sets
.BR \-\-training.steps .
The command line overrides the environment, which overrides
.IR train.cfg .
Options that ask for information, such as
.BR \-\-help ,
have no variable.
.TP
.B NO_COLOR
If not empty, nothing is coloured unless
.B \-\-color
says so.
.TP
.B COLUMNS
Width of tables and drawings.
.TP
.B POPRUN_EMU_TOKEN
Secret token of the job; must be the token of the data server at
.B \-\-hostio\-address
if that option is given.
.TP
.B OMPI_MCA_*
Open MPI's settings; they override those that
.B poprun\-emu
chooses.
.SH FILES
Below the installation prefix:
.TP
.I share/poprun\-emu/train.cfg
The default job.
.TP
.I share/poprun\-emu/examples
Further example jobs.
.SH EXAMPLES
.TP
.B poprun\-emu \-n 16 train.cfg
Train with 16 replicas on this machine.
.TP
.B poprun\-emu \-n 16 \-H node[0\-3] train.cfg
Train with 16 replicas on four hosts.
.TP
.B poprun\-emu \-\-dry\-run \-\-model gpt2 train.cfg
Show what a gpt2 job would need.
.TP
.B poprun\-emu estimate \-\-vary data.micro\-batch\-size=1,2,4 train.cfg
Estimate how memory grows with the batch.
.TP
.B poprun\-emu profile \-\-no\-run train.cfg
Show where the compiled job\(aqs memory and device time go.
.SH SEE ALSO
.BR mpirun (1)
)";

}  // namespace

std::string manual_page() {
  std::string page = fmt::format(
      ".\\\" Generated from the option table.\n.TH POPRUN\\-EMU 1 \"\" \"poprun\\-emu "
      "{}\" \"User Commands\"\n.nh\n.ad l\n{}",
      POPRUN_VERSION, kBeforeOptions);
  page += ".SH SUBCOMMANDS\nWithout a subcommand, the job runs.\n";
  for (const SubcommandRow& row : subcommands()) {
    page += entry(bold(row.name), row.meaning);
  }
  for (const InformationRow& row : information()) {
    page += entry(bold(row.name), row.meaning);
  }
  page += ".SH OPTIONS\n";
  for (const Section& section : sections()) {
    page += fmt::format(".SS {}\n", section.title);
    for (const OptionRow& row : option_table()) {
      if (row.section == section.name) {
        page += entry_of(row);
      }
    }
  }
  page += ".SH EXIT STATUS\n";
  for (const auto& [codes, meaning] : exit_codes()) {
    page += entry(bold(codes), meaning);
  }
  return page + kAfterOptions;
}

}  // namespace poprun::launcher
