//! x
fn main() {
    println!("{:?}", std::env::args_os().collect::<Vec<_>>());
    std::process::exit(5)
}
