// @ts-check
/* Alerts of the reader's thresholds that a metric has crossed: marks on its chart, from the list beside the charts. */

/** @param {string} name of the metric @param {import('./curves.js').Curves} curves @param {import('./curves.js').Axis} axis @returns {import('./chart.js').Mark[]} */
export function alerts(name, curves, axis) {
  const told = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('#watches [data-alert]')]);
  return told
    .filter((each) => each.dataset.alert === name)
    .map((each) => ({ at: curves.x({ step: Number(each.dataset.step), t: timeOf(each, name, curves) }, axis), label: 'alert', title: each.dataset.title || '' }));
}

/** When the step was done, by the curve; where that is thinned out, when somebody was told. @param {HTMLElement} each @param {string} name @param {import('./curves.js').Curves} curves */
function timeOf(each, name, curves) {
  const curve = curves.byName.get(name)?.[/** @type {'train' | 'test'} */ (each.dataset.group)];
  const place = curve ? curve.steps.indexOf(Number(each.dataset.step)) : -1;
  return curve && place >= 0 ? curve.times[place] : Number(each.dataset.at);
}
