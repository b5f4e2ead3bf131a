export const shown = ({ cents }) => (cents / 100).toFixed(2);
