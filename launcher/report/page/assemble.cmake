# Puts the style and the script into the page: cmake -DPAGE=index.html -DPARTS=DIR -DOUT=report.html -P assemble.cmake
file(READ "${PAGE}" html)
file(READ "${PARTS}/style.css" style)
file(READ "${PARTS}/main.js" script)
string(REPLACE "/*STYLE*/" "${style}" html "${html}")
string(REPLACE "/*SCRIPT*/" "${script}" html "${html}")
file(WRITE "${OUT}" "${html}")
