//! What is asked by posting an object: reviews, and tokens of service accounts. Nothing of it is stored.

use super::{Answers, Strategy};
use crate::{reviews::Reviews, tokens::TokenRequests};

pub struct Review;
pub struct ServiceAccount;

impl Strategy for Review {
    fn answers(&self, _: &str) -> Option<&dyn Answers> {
        Some(&Reviews)
    }
}

impl Strategy for ServiceAccount {
    fn answers(&self, subresource: &str) -> Option<&dyn Answers> {
        (subresource == "token").then_some(&TokenRequests as &dyn Answers)
    }
}
