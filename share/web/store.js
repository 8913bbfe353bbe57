// What outlives a reload: settings and job ids as text, images and requests that wait in the browser's database.
const kKeep = 200;  // images of the gallery

export const settings = {
  read(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(`rocm-sd.${name}`)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  write(name, value) {
    try {
      localStorage.setItem(`rocm-sd.${name}`, JSON.stringify(value));
    } catch { /* a full or forbidden store: the page works without it */ }
  },
};

const opened = new Promise((resolve) => {
  const request = indexedDB.open("rocm-sd", 2);
  request.onupgradeneeded = () => {
    const has = request.result.objectStoreNames;
    if (!has.contains("images")) request.result.createObjectStore("images", {keyPath: "id"}).createIndex("time", "time");
    if (!has.contains("files")) request.result.createObjectStore("files");
    for (const name of ["waiting", "grids"])
      if (!has.contains(name)) request.result.createObjectStore(name, {keyPath: "id"});
  };
  request.onsuccess = () => {
    request.result.onversionchange = () => request.result.close();  // a newer page in another tab
    resolve(request.result);
  };
  request.onerror = () => resolve(null);  // private windows of some browsers have none
});

async function ask(store, mode, work) {
  const database = await opened;
  if (!database) return undefined;
  return new Promise((resolve) => {
    const transaction = database.transaction(store, mode);
    const request = work(transaction.objectStore(store));
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onerror = transaction.onabort = () => resolve(undefined);
  });
}

const table = (name) => ({
  all: async () => (await ask(name, "readonly", (s) => s.getAll())) ?? [],
  put: (entry) => ask(name, "readwrite", (s) => s.put(entry)),
  remove: (id) => ask(name, "readwrite", (s) => s.delete(id)),
});

export const waiting = table("waiting");  // requests that the server has not taken yet
export const grids = table("grids");

export const images = {
  ...table("images"),
  all: async () => (await ask("images", "readonly", (s) => s.index("time").getAll())) ?? [],
  async trim() {
    const all = await images.all();
    for (const old of all.slice(0, Math.max(0, all.length - kKeep))) await images.remove(old.id);
  },
};

export const files = {
  get: (name) => ask("files", "readonly", (s) => s.get(name)),
  put: (name, blob) => ask("files", "readwrite", (s) => (blob ? s.put(blob, name) : s.delete(name))),
};
