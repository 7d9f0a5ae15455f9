// The axes that the bars of tiles and the curve of steps have in common.
import {clamp, grouped} from '../dom.js';

const left = 62;
const bottom = 22;

/** Returns "512 KiB" for the ticks of an axis. */
export function tickText(count) {
  const power = Math.min(3, Math.floor(Math.log2(Math.max(count, 1)) / 10));
  return `${Number((count / 1024 ** power).toPrecision(4))} ${['B', 'KiB', 'MiB', 'GiB'][power]}`;
}

/** Returns the distance of about `count` ticks up to `most` bytes: a power of two. */
export const tickDistance = (most, count) => 2 ** Math.ceil(Math.log2(Math.max(most / count, 1)));

/** Maps the items of a zoom to x, and bytes up to `most` to y. The caller sets width, height, zoom and most before it draws. */
export class Plot {
  constructor(top) {
    Object.assign(this, {left, top});
  }

  get step() {
    return (this.width - left) / this.zoom.size;
  }

  get base() {
    return this.height - bottom;
  }

  x(item) {
    return left + (item - this.zoom.from) * this.step;
  }

  y(bytes) {
    return this.top + (this.base - this.top) * (1 - bytes / this.most);
  }

  itemAt(x) {
    return clamp(this.zoom.from + Math.floor((x - left) / this.step), this.zoom.from, this.zoom.to - 1);
  }

  /** Draws a horizontal line at some bytes, in the current style. */
  line(context, bytes) {
    const y = Math.round(this.y(bytes)) + 0.5;
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(this.width, y);
    context.stroke();
  }

  drawAxis(context, theme) {
    context.textAlign = 'right';
    context.fillStyle = theme.faint;
    context.strokeStyle = theme.line;
    const distance = tickDistance(this.most, 5);
    for (let bytes = 0; bytes <= this.most; bytes += distance) {
      context.fillText(tickText(bytes), left - 6, this.y(bytes) + 4);
      this.line(context, bytes);
    }
    context.textAlign = 'center';
    const every = Math.max(1, 2 ** Math.ceil(Math.log2(this.zoom.size / 10)));
    for (let item = Math.ceil(this.zoom.from / every) * every; item < this.zoom.to; item += every) {
      context.fillText(grouped(item), Math.min(this.x(item + 0.5), this.width - 20), this.height - 6);
    }
  }

  /** Draws the dashed line of a limit with its text above it or, if `back` is a colour, below it on that background. */
  drawLimit(context, limit, text, colour, back = null) {
    const y = Math.round(this.y(limit)) + 0.5;
    context.strokeStyle = colour;
    context.setLineDash([6, 4]);
    this.line(context, limit);
    context.setLineDash([]);
    if (back) {
      context.fillStyle = back;
      context.fillRect(left + 2, y + 3, context.measureText(text).width + 6, 15);
    }
    context.textAlign = 'left';
    context.fillStyle = colour;
    context.fillText(text, left + 5, back ? y + 15 : y - 5);
  }
}
