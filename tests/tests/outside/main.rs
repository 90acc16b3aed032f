//! What others read of us and run of us: pages, documents, guides, what is deployed, and programs that nobody here wrote.

mod archives;
mod catch_up;
mod comments;
mod completions;
mod copies;
mod deploy;
mod deployed;
mod figures;
mod generators;
mod guides;
mod habits;
mod layers;
mod load;
mod mementos;
mod mutants;
mod openapi;
mod ours;
mod packages;
mod pages;
mod papers;
mod peers;
mod schemas;
mod supply_chain;
mod tables;
