#pragma once

#include <string>

namespace poprun::launcher {

/// Returns the live page of a job: one HTML document with its style and script (page/page.html, page.css and page.js).
/// The script asks for `status.json` beside the page every 2 s, so the page also works below a path of a proxy, and
/// shows every text of the job as text.
std::string live_page();

/// Return the header fields for the live page and for its data. A browser executes no script but that of the page,
/// loads nothing from elsewhere, guesses no content types and stores neither.
std::string live_page_fields();
std::string status_fields();

}  // namespace poprun::launcher
