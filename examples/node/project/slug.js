export const slug = (text) => text.trim().toLowerCase().split(/\s+/).join("-");
